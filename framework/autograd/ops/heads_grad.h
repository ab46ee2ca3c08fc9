#pragma once

#include <cstddef>
#include <span>

#include "framework/autograd/tape.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {

/// The backward pass of a norm of heads in a projection `x`, of which no other operation reads anything. `work(x, dy,
/// dx)` gets the values, the gradient of the result `y`, and the memory for that of `x`, which begins as a copy of
/// `dy`; if `x` is frozen, that is scratch memory, because the gradients of the gains come from the same kernels.
/// Without a gradient of `y` it is not called.
template <class Work>
void backward_of_heads(Tape& tape, VarId y, const Var& x, const Work& work) {
  const auto dy = tape.take_grad(y);
  if (dy.empty()) return;
  auto target = tape.grad_target(x);
  must(!target.add, "only the norm of its heads looks at a projection");
  Memory nobodys;
  if (target.tensor.empty()) {
    nobodys = tape.scratch(static_cast<std::size_t>(x.shape().elements()));
    target.tensor = Tensor(nobodys.bytes(), DType::float32, x.shape());
  }
  const auto values = tape.read(x), d = tape.read(dy.tensor), dx = tape.write(target);
  kernels::copy(tape.threads(), d, dx);
  work(values, d, dx);
}

}  // namespace tessera::autograd
