#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

// Differentiable activations. Each operation returns a new value on the tape of x, and records itself if x wants a
// gradient.

/// Gated linear unit y = act(gate) * up: SwiGLU with silu, GeGLU with a gelu.
///
///   x   [.., 2 F] = [gate | up] in the last dimension
///   y   [.., F]
///
/// y is in the tape's compute type. Keeps x for the backward pass; y can be discarded (Tape::discard). Throws
/// ShapeError if the last extent of x is odd.
Var gated(const Var& x, kernels::Activation act, const kernels::GateForm& form = {});

/// y = act(x), for any act except `none`, in the tape's compute type. Keeps x for the backward pass; y can be discarded
/// (Tape::discard).
Var activated(const Var& x, kernels::Activation act);

/// y = factor * x, for any shape, in the type of x; in the memory of x if no other handle refers to x, else in new
/// memory. Keeps nothing for the backward pass, which throws BugError if another operation has already given x a
/// gradient.
Var scaled(Var x, double factor);

/// y = cap * tanh(x / cap), for any shape, in the tape's compute type. Keeps y for the backward pass, which throws
/// BugError in the same case as `scaled`. Throws BugError unless cap > 0.
Var softcapped(const Var& x, double cap);

}  // namespace tessera::autograd
