#pragma once

#include <cstring>

#include "framework/autograd/tape.h"

namespace tessera {

/// The value of x at a place of its own, to be changed: in the memory of x when nobody else looks at it, else copied.
/// Its gradient is not yet that of x.
inline Var to_change(Var x, bool wants_grad) {
  auto& tape = x.tape();
  const auto before = x.value();
  auto y = tape.reuse(std::move(x), wants_grad);
  const auto& now = y.value();
  if (now.raw().data() != before.raw().data()) std::memcpy(now.raw().data(), before.raw().data(), before.bytes());
  return y;
}

}  // namespace tessera
