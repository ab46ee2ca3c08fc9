#pragma once

#include <cstring>

#include "framework/autograd/tape.h"

namespace tessera::autograd {

/// The value of x as a new value that may be changed in place: in the memory of x if no other handle refers to it, else
/// a copy. The caller records the operation that connects its gradient to that of x.
inline Var to_change(Var x, bool wants_grad) {
  auto& tape = x.tape();
  const auto before = x.value();
  auto y = tape.reuse(std::move(x), wants_grad);
  const auto& now = y.value();
  if (now.raw().data() != before.raw().data()) std::memcpy(now.raw().data(), before.raw().data(), before.bytes());
  return y;
}

}  // namespace tessera::autograd
