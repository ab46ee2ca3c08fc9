#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// y[t] = sigmoid(gate[t]) x[t].
///
///   x      [.., h]   kept for the backward pass
///   gate   [.., 1]   same number of rows as x; kept for the backward pass
///   y      [.., h]   in the type of x; computed in fp32 and rounded once
///
/// No other operation may use x or `gate`: the backward pass throws BugError if it finds another gradient. Throws
/// ShapeError if the extents do not match.
Var gated_rows(const Var& x, const Var& gate);

}  // namespace tessera::autograd
