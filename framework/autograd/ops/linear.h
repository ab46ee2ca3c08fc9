#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"

namespace tessera {

/// y [.., out] = x [.., in] w^T + bias; w [out, in], bias [out] or nullptr. Keeps x.
Var linear(const Var& x, Leaf& w, Leaf* bias);

/// y = act(x w^T + bias) in one pass. Keeps x and what enters the activation.
Var linear_activation(const Var& x, Leaf& w, Leaf* bias, Activation act);

/// y = x + bias in every row, in the memory of x when nobody else looks at it. Keeps nothing.
Var add_bias(Var x, Leaf& bias);

}  // namespace tessera
