#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera::autograd {

// Linear layers, as kernels/linear.h defines them: w is [out, in]. Results are in the tape's compute type; the
// gradients of w and bias are accumulated in fp32 in their leaves. All throw ShapeError if the extents do not match.

/// y = x w^T + bias.
///
///   x   [.., in]    kept for the backward pass
///   y   [.., out]
///
/// `bias` [out] may be nullptr.
Var linear(const Var& x, Leaf& w, Leaf* bias);

/// y = x w^T in fp32, whatever the compute type: products and sums are computed in double, also those of the gradients,
/// and each result is rounded once. The weight is not rounded to the compute type.
Var linear_in_double(const Var& x, Leaf& w);

/// y = act(x w^T + bias) in one pass over y, for any act except `none`. Keeps x and the input of the activation; y can
/// be discarded (Tape::discard).
Var linear_activation(const Var& x, Leaf& w, Leaf* bias, kernels::Activation act);

/// y = x + bias [width] in every row; in the memory of x if no other handle refers to it. Keeps nothing. For
/// row-parallel layers, where the bias must be added after the all-reduce.
Var add_bias(Var x, Leaf& bias);

}  // namespace tessera::autograd
