#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// y[t] = sigmoid(gate[t]) x[t].
///
///   x      [.., h]   kept for the backward pass; must have no other use
///   gate   [.., 1]   as many rows; kept, must have no other use
///   y      in the type of x; computed in fp32 and rounded once
///
/// Throws ShapeError if the extents do not match.
Var gated_rows(const Var& x, const Var& gate);

}  // namespace tessera::autograd
