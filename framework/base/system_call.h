#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>

namespace tessera {

/// Calls `call`, a system call that returns a negative number and sets errno on failure, and repeats it while a signal
/// interrupts it (EINTR). Returns its result.
template <class Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// The name of this host; "an unknown host" if the system does not tell it.
inline std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "an unknown host";
}

/// Writes all `bytes` to a file descriptor. Returns false if a write fails, with the reason in errno. Does not throw.
inline bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto count = uninterrupted([&] { return ::write(descriptor, bytes.data(), bytes.size()); });
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace tessera
