#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// y = gelu(x), elementwise; `act` is gelu_tanh or gelu_erf. y may be x.
/// Source: Hendrycks & Gimpel, arXiv:1606.08415; tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
void gelu_forward(Threads& threads, Activation act, std::span<const float> x, std::span<float> y);

/// dx = dy * gelu'(x), or += when `add`. dx may be dy when not `add`.
void gelu_backward(Threads& threads, Activation act, std::span<const float> dy, std::span<const float> x,
                   std::span<float> dx, bool add);

/// y = silu(gate) * up, silu(v) = v / (1 + exp(-v)). x [rows, 2 width] holds [gate | up] in each row; y [rows, width].
/// Source: Shazeer, arXiv:2002.05202.
void swiglu_forward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> x,
                    std::span<float> y);

/// dx [rows, 2 width] from dy [rows, width]; dx may be x.
void swiglu_backward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> dy,
                     std::span<const float> x, std::span<float> dx, bool add);

}  // namespace tessera
