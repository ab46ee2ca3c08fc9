#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera {

/// y [.., F] = act(gate) * up from x [.., 2 F] = [gate | up]: SwiGLU with silu, GeGLU with a gelu. Keeps x.
Var gated(const Var& x, Activation act);

/// y = factor x, in the memory of x when nobody else looks at it. Keeps nothing.
Var scaled(Var x, double factor);

/// y = cap tanh(x / cap). Keeps y.
Var softcapped(const Var& x, double cap);

}  // namespace tessera
