#include "framework/comm/launch_link.h"

#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>

namespace tessera {
namespace {

constexpr std::size_t longest_text = 8000;  // a packet is sent whole or not at all

/// The socket of "descriptor:inode", or -1 when that descriptor is another file.
int promised_socket(const char* promise) {
  if (promise == nullptr) return -1;
  char* rest = nullptr;
  const long descriptor = std::strtol(promise, &rest, 10);
  if (rest == promise || *rest != ':' || descriptor < 0) return -1;
  const auto inode = std::strtoull(rest + 1, nullptr, 10);
  struct stat found = {};
  if (fstat(static_cast<int>(descriptor), &found) != 0) return -1;
  return S_ISSOCK(found.st_mode) && found.st_ino == inode ? static_cast<int>(descriptor) : -1;
}

}  // namespace

LaunchLink::LaunchLink() : descriptor_(promised_socket(std::getenv("TESSERA_LAUNCH_LINK"))) {
  const char* folder = std::getenv("TESSERA_LAUNCH_FOLDER");
  if (present() && folder != nullptr) folder_ = folder;
}

void LaunchLink::say(LinkWord word, const std::string& about) const {
  if (!present()) return;
  const std::string packet = static_cast<char>(word) + about.substr(0, longest_text);
  // A line that is full or gone is no reason for a worker to stop.
  static_cast<void>(send(descriptor_, packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
}

}  // namespace tessera
