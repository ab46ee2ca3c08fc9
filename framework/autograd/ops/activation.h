#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

// Differentiable activations. Each operation returns a new value on the tape of x in the tape's compute type, and
// records itself if x wants a gradient.

/// Gated linear unit y = act(gate) * up: SwiGLU with silu, GeGLU with a gelu.
///
///   x   [.., 2 F] = [gate | up] in the last dimension
///   y   [.., F]
///
/// Keeps x for the backward pass; y can be discarded (Tape::discard). Throws ShapeError if the last extent of x is odd.
Var gated(const Var& x, kernels::Activation act);

/// y = factor * x, any shape; in the memory of x if no other handle refers to it. Keeps nothing. x must have no other
/// use whose gradient arrives first (BugError).
Var scaled(Var x, double factor);

/// y = cap * tanh(x / cap), any shape. Keeps y. x must have no other use, as for scaled.
Var softcapped(const Var& x, double cap);

}  // namespace tessera::autograd
