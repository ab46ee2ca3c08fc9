#pragma once

#include "framework/autograd/tape.h"

namespace tessera {

/// y [.., F] = silu(gate) * up from x [.., 2 F] = [gate | up]. Keeps x.
Var swiglu(const Var& x);

}  // namespace tessera
