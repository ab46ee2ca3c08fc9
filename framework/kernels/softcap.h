#pragma once

#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Soft capping of logits: y = cap * tanh(x / cap), elementwise.
///
///   x, y   [n]   any shape, flattened; y may be x
///
/// `cap` is above 0. Elementwise, so the result does not depend on the number of threads. Throws ShapeError if the
/// sizes differ, BugError for cap <= 0. Source: Gemma 2, arXiv:2408.00118.
void softcap_forward(Threads& threads, double cap, std::span<const float> x, std::span<float> y);

/// Gradient with respect to x from the output y of the forward pass: dx = dy * (1 - (y / cap)^2). dx may be dy. Throws
/// as softcap_forward.
void softcap_backward(Threads& threads, double cap, std::span<const float> dy, std::span<const float> y,
                      std::span<float> dx);

}  // namespace tessera::kernels
