#include "framework/base/build_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/system_call.h"

namespace tessera {
namespace {

bool is_same_file(int descriptor, const std::filesystem::path& path) {
  struct stat open_file {};
  struct stat named {};
  return ::fstat(descriptor, &open_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

void write_owner(int descriptor) {
  const auto owner = text("process ", ::getpid(), " on host ", host_name());
  // For messages only: nothing is lost when it cannot be written.
  if (::ftruncate(descriptor, 0) == 0 && ::pwrite(descriptor, owner.data(), owner.size(), 0) < 0) return;
}

}  // namespace

std::optional<BuildLock> BuildLock::try_take(const std::filesystem::path& file) {
  for (;;) {
    const int descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) throw IoError(text(file.string(), ": cannot be created: ", std::strerror(errno)));
    BuildLock lock(file, descriptor);
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK || errno == EINTR) {
        ::close(descriptor);
        lock.descriptor_ = -1;
        return std::nullopt;
      }
      return lock;  // a file system without locks
    }
    if (is_same_file(descriptor, file)) {
      write_owner(descriptor);
      return lock;
    }
    // Its owner deleted it between our opening and locking: what we locked has no name any more.
    ::close(descriptor);
    lock.descriptor_ = -1;
  }
}

BuildLock BuildLock::take(const std::filesystem::path& file) {
  constexpr std::chrono::milliseconds pause(50);
  for (;;) {
    if (auto lock = try_take(file)) return *std::move(lock);
    std::this_thread::sleep_for(pause);
  }
}

std::string BuildLock::owner(const std::filesystem::path& file) {
  try {
    const auto owner = read_file(file);
    if (!owner.empty()) return owner;
  } catch (const IoError&) {  // it may be gone already
  }
  return "another process";
}

BuildLock::BuildLock(BuildLock&& other) noexcept : file_(std::move(other.file_)), descriptor_(other.descriptor_) {
  other.descriptor_ = -1;
}

BuildLock::~BuildLock() {
  if (descriptor_ < 0) return;
  ::unlink(file_.c_str());  // before the lock is released, so that nobody else's file is deleted
  ::close(descriptor_);
}

}  // namespace tessera
