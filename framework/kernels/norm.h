#pragma once

#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Layer normalization over the last axis: y = (x - mean) / sqrt(var + eps) * (gain + gain_offset) + bias.
///
///   x, y            [rows, width]   y may be x
///   gain, bias      [width]         bias may be empty: no bias
///   mean, inv_std   [rows]          written: mean and 1 / sqrt(var + eps), needed by the backward pass
///
/// gain_offset is 1 for a zero-centred gain (Megatron's apply_layernorm_1p), else 0. Two passes over a row: the
/// variance is computed from deviations, so that a large mean does not cancel it. Sums run in an order that depends on
/// `width` only. x, y, dy and dx are of any type; a row is computed in fp32 and rounded once. Throws ShapeError if a size differs from these shapes. Source: Ba et al., arXiv:1607.06450.
void layernorm_forward(Threads& threads, const Elements& x, std::span<const float> gain, std::span<const float> bias,
                       double eps, float gain_offset, const MutableElements& y, std::span<float> mean,
                       std::span<float> inv_std);

/// Gradients of layernorm_forward.
///
///   dy, dx          [rows, width]   dx is written, or added to when `add`; dx may be dy when `add` is false
///   x, gain         as given to the forward pass
///   mean, inv_std   [rows]          as the forward pass wrote them
///   dgain, dbias    [width]         added to; dbias may be empty
///
/// The rows are divided into at most 64 ranges by their number only; the partial sums of dgain and dbias are added in
/// double in the order of the ranges, so results do not depend on the number of threads. Throws as layernorm_forward.
void layernorm_backward(Threads& threads, const Elements& dy, const Elements& x, std::span<const float> gain,
                        float gain_offset, std::span<const float> mean, std::span<const float> inv_std,
                        const MutableElements& dx, bool add, std::span<float> dgain, std::span<float> dbias);

/// Root mean square normalization: y = x / sqrt(mean(x^2) + eps) * (gain + gain_offset).
///
///   inv_rms   [rows]   written: 1 / sqrt(mean(x^2) + eps), needed by the backward pass
///
/// The other shapes, the order of sums and the errors are those of layernorm_forward. Source: Zhang & Sennrich,
/// arXiv:1910.07467.
void rmsnorm_forward(Threads& threads, const Elements& x, std::span<const float> gain, double eps, float gain_offset,
                     const MutableElements& y, std::span<float> inv_rms);

/// Gradients of rmsnorm_forward; the arguments are those of layernorm_backward.
void rmsnorm_backward(Threads& threads, const Elements& dy, const Elements& x, std::span<const float> gain,
                      float gain_offset, std::span<const float> inv_rms, const MutableElements& dx, bool add,
                      std::span<float> dgain);

}  // namespace tessera::kernels
