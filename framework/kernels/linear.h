#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// The four products of a linear layer, y = x w^T + bias. All row-major and dense:
///
///   x, dx   [rows, in]
///   w, dw   [out, in]    as Megatron and PyTorch store it
///   y, dy   [rows, out]
///   bias    [out]        or empty: none
///
/// Tiles depend on rows, in and out only, so results do not depend on the number of threads. Throws ShapeError when the
/// spans do not have the promised extents.
struct LinearExtents {
  std::int64_t rows, in, out;
};

/// What is done to each tile of y while it is in the cache.
enum class Activation { none, gelu_tanh, gelu_erf, quick_gelu, silu, relu, squared_relu };

/// y = x w^T + bias.
void linear_forward(Threads& threads, LinearExtents e, std::span<const float> x, std::span<const float> w,
                    std::span<const float> bias, std::span<float> y);

/// y = act(x w^T + bias); `before` [rows, out] receives x w^T + bias, which the backward pass needs.
void linear_activation_forward(Threads& threads, LinearExtents e, Activation act, std::span<const float> x,
                               std::span<const float> w, std::span<const float> bias, std::span<float> before,
                               std::span<float> y);

/// dx = dy w, or dx += dy w when `add`.
void linear_backward_input(Threads& threads, LinearExtents e, std::span<const float> dy, std::span<const float> w,
                           std::span<float> dx, bool add);

/// dw += dy^T x: straight into the main gradient.
void linear_backward_weight(Threads& threads, LinearExtents e, std::span<const float> dy, std::span<const float> x,
                            std::span<float> dw);

/// y += bias in every row: where y was a sum that had to be complete first.
void linear_add_bias(Threads& threads, std::int64_t rows, std::int64_t out, std::span<const float> bias,
                     std::span<float> y);

/// dbias += the sum of the rows of dy.
void linear_backward_bias(Threads& threads, std::int64_t rows, std::int64_t out, std::span<const float> dy,
                          std::span<float> dbias);

}  // namespace tessera
