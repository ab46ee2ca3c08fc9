#pragma once

#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// Layer normalisation over the last axis: y = (x - mean) / sqrt(var + eps) * (gain + gain_offset) + bias.
///
///   x, y            [rows, width]   y may be x
///   gain, bias      [width]         bias may be empty: none
///   mean, inv_std   [rows]          kept for the backward pass
///
/// gain_offset is 1 for a zero-centred gain (apply_layernorm_1p), else 0. Sums run in an order that does not depend on
/// the number of threads, wide enough that a large mean does not cancel (two passes). Source: Ba et al.,
/// arXiv:1607.06450.
void layernorm_forward(Threads& threads, std::span<const float> x, std::span<const float> gain,
                       std::span<const float> bias, double eps, float gain_offset, std::span<float> y,
                       std::span<float> mean, std::span<float> inv_std);

/// dx = gradient by x, or += when `add`; dgain and dbias (may be empty) are added to. dx may be dy when not `add`.
void layernorm_backward(Threads& threads, std::span<const float> dy, std::span<const float> x,
                        std::span<const float> gain, float gain_offset, std::span<const float> mean,
                        std::span<const float> inv_std, std::span<float> dx, bool add, std::span<float> dgain,
                        std::span<float> dbias);

/// y = x / sqrt(mean(x^2) + eps) * (gain + gain_offset). Shapes as above. Source: Zhang & Sennrich, arXiv:1910.07467.
void rmsnorm_forward(Threads& threads, std::span<const float> x, std::span<const float> gain, double eps,
                     float gain_offset, std::span<float> y, std::span<float> inv_rms);

void rmsnorm_backward(Threads& threads, std::span<const float> dy, std::span<const float> x,
                      std::span<const float> gain, float gain_offset, std::span<const float> inv_rms,
                      std::span<float> dx, bool add, std::span<float> dgain);

}  // namespace tessera
