#pragma once

#include "framework/autograd/tape.h"
#include "framework/kernels/vector.h"

namespace tessera::autograd {

/// Returns a new value with the elements of x that may be changed in place: in the memory of x if no other handle
/// refers to x, else a copy. The caller records the operation that computes the gradient of x from the gradient of the
/// result.
inline Var to_change(Var x, bool wants_grad) {
  auto& tape = x.tape();
  const auto before = x.value();
  auto y = tape.reuse(std::move(x), wants_grad);
  const auto& now = y.value();
  if (now.raw().data() != before.raw().data()) kernels::copy_bytes(tape.threads(), before.raw(), now.raw());
  return y;
}

}  // namespace tessera::autograd
