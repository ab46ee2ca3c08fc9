#pragma once

#include <cerrno>

namespace tessera {

/// The result of `call`, a system call that returns a negative number and sets errno if it fails; repeated while a signal
/// interrupts it.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace tessera
