#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {

/// The value of x as a new value that may be changed in place: in the memory of x if no other handle refers to it, else
/// a copy. The caller records the operation that connects its gradient to that of x.
inline Var to_change(Var x, bool wants_grad) {
  auto& tape = x.tape();
  const auto before = x.value();
  auto y = tape.reuse(std::move(x), wants_grad);
  const auto& now = y.value();
  if (now.raw().data() != before.raw().data()) kernels::copy_bytes(tape.threads(), before.raw(), now.raw());
  return y;
}

}  // namespace tessera::autograd
