#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// y = act(x), elementwise; any activation but none. y may be x.
///
///   gelu_tanh     0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   Hendrycks & Gimpel, arXiv:1606.08415
///   gelu_erf      0.5 x (1 + erf(x / sqrt 2))
///   quick_gelu    x sigmoid(1.702 x)
///   silu          x sigmoid(x)                                      Elfwing et al., arXiv:1702.03118
///   relu          max(x, 0)
///   squared_relu  max(x, 0)^2                                       So et al., arXiv:2109.08668
void activation_forward(Threads& threads, Activation act, std::span<const float> x, std::span<float> y);

/// dx = dy * act'(x), or += when `add`. dx may be dy when not `add`. The slope of relu at 0 is 0.
void activation_backward(Threads& threads, Activation act, std::span<const float> dy, std::span<const float> x,
                         std::span<float> dx, bool add);

/// y = act(gate) * up. x [rows, 2 width] holds [gate | up] in each row; y [rows, width]. With silu this is SwiGLU, with
/// a gelu GeGLU. Source: Shazeer, arXiv:2002.05202.
void gated_forward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, std::span<const float> x,
                   std::span<float> y);

/// dx [rows, 2 width] from dy [rows, width]; dx may be x.
void gated_backward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, std::span<const float> dy,
                    std::span<const float> x, std::span<float> dx, bool add);

}  // namespace tessera
