#pragma once

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// Layer normalization over the last dimension; kernels/norm.h has the formula.
///
///   x, result    [.., width]
///   gain, bias   [width]   bias may be nullptr
///
/// `gain_offset` is added to the gain: 1 for a zero-centred gain, else 0. The result is in the tape's compute type.
/// Keeps x and the mean and inverse standard deviation of each row; the result can be discarded (Tape::discard). Throws
/// ShapeError if the extents do not match.
Var layernorm(const Var& x, Leaf& gain, Leaf* bias, double eps, float gain_offset);

/// Root mean square normalization, x / sqrt(mean(x^2) + eps) * (gain + gain_offset), over the last dimension. Shapes,
/// types, errors and discarding as layernorm. Keeps x and 1 / sqrt(mean(x^2) + eps) of each row.
Var rmsnorm(const Var& x, Leaf& gain, double eps, float gain_offset);

}  // namespace tessera::autograd
