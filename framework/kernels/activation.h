#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// y = act(x), elementwise.
///
///   x, y   [n]   any shape, flattened; y may be x
///
/// `act` is any activation except `none`:
///
///   gelu_tanh     0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))   Hendrycks & Gimpel, arXiv:1606.08415
///   gelu_erf      0.5 x (1 + erf(x / sqrt 2))
///   quick_gelu    x sigmoid(1.702 x)
///   silu          x sigmoid(x)                                      Elfwing et al., arXiv:1702.03118
///   relu          max(x, 0)
///   squared_relu  max(x, 0)^2                                       So et al., arXiv:2109.08668
///
/// x and y may have different types (float32, bfloat16, float16); each element is computed in fp32 and rounded once.
/// Elementwise, so the result does not depend on the number of threads. Throws ShapeError if the sizes differ, BugError
/// for `none`.
void activation_forward(Threads& threads, Activation act, const Elements& x, const MutableElements& y);

/// Gradient of activation_forward with respect to x: dx = dy * act'(x), or dx += dy * act'(x) if `add`.
///
///   dy, x, dx   [n]   x is the input of the forward pass; dx may be dy if `add` is false
///
/// The derivative of relu at 0 is 0, as in PyTorch. Throws as activation_forward.
void activation_backward(Threads& threads, Activation act, const Elements& dy, const Elements& x,
                         const MutableElements& dx, bool add);

/// Bounds and offset of a gated linear unit (gpt-oss). The defaults change nothing.
struct GateForm {
  double clamp = 0;   ///< if not 0: the gate is at most this, and up is within +-this
  double offset = 0;  ///< added to up, after the clamp

  bool plain() const { return clamp == 0 && offset == 0; }
};

/// Gated linear unit: y = act(gate) * up, with the bounds and the offset of `form`. With silu this is SwiGLU, with a
/// gelu GeGLU.
///
///   x   [rows, 2 * width]   each row is [gate | up], the order Megatron uses
///   y   [rows, width]
///
/// Throws ShapeError if a size differs from these shapes, BugError for `none`. Source: Shazeer, arXiv:2002.05202.
void gated_forward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, const Elements& x,
                   const MutableElements& y, const GateForm& form = {});

/// Gradient of gated_forward with respect to x; overwrites dx, or is added to dx if `add`. It is 0 where a clamp holds.
///
///   dy      [rows, width]
///   x, dx   [rows, 2 * width]   x is the input of the forward pass; dx may be x if `add` is false
///
/// Throws as gated_forward.
void gated_backward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, const Elements& dy,
                    const Elements& x, const MutableElements& dx, bool add, const GateForm& form = {});

}  // namespace tessera::kernels
