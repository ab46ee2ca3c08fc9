#include "tests/file_calls.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace tessera {
namespace {

namespace fs = std::filesystem;

FileCalls* watching = nullptr;

fs::path absolute_path(const fs::path& path) {
  const auto normal = fs::absolute(path).lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path path_of(int descriptor) {
  std::error_code none;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(descriptor), none);
}

bool is_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

/// `paths` after `from` got the name `to`; with `exchanged` also the reverse.
std::set<fs::path> moved(const std::set<fs::path>& paths, const fs::path& from, const fs::path& to, bool exchanged) {
  std::set<fs::path> out;
  for (const auto& path : paths) {
    if (is_in(path, from))
      out.insert(path == from ? to : to / path.lexically_relative(from));
    else if (!is_in(path, to))
      out.insert(path);
    else if (exchanged)
      out.insert(path == to ? from : from / path.lexically_relative(to));
  }
  return out;
}

}  // namespace

FileCalls::FileCalls(const fs::path& folder) : folder_(absolute_path(folder)) {
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) stored_.insert(entry.path());
  watching = this;
}

FileCalls::~FileCalls() { watching = nullptr; }

FileCalls* FileCalls::current() { return watching; }

std::vector<std::string> FileCalls::lost_by_crash(const fs::path& path, bool inside) const {
  const auto top = absolute_path(path);
  std::vector<std::string> lost;
  const auto look = [&](const fs::path& one) {
    bool safe = unsynced_.count(one) == 0;
    for (auto at = one; safe && at != folder_ && !(inside && at == top); at = at.parent_path())
      safe = stored_.count(at) > 0;
    if (!safe) lost.push_back(one.lexically_relative(folder_).string());
  };
  look(top);
  if (fs::is_directory(top))
    for (const auto& entry : fs::recursive_directory_iterator(top)) look(entry.path());
  std::sort(lost.begin(), lost.end());
  return lost;
}

void FileCalls::written(int descriptor) {
  if (const auto path = path_of(descriptor); is_in(path, folder_)) unsynced_.insert(path);
}

bool FileCalls::synced(int descriptor) {
  const auto path = path_of(descriptor);
  if (!is_in(path, folder_)) return true;
  ++syncs_;
  if (sync_fails && sync_fails(path)) return false;
  unsynced_.erase(path);
  if (fs::is_directory(path))
    for (const auto& entry : fs::directory_iterator(path)) stored_.insert(entry.path());
  return true;
}

void FileCalls::renaming(const char* from, const char* to) const {
  if (before_rename) before_rename(absolute_path(from), absolute_path(to));
}

void FileCalls::renamed(const char* from, const char* to, bool exchanged) {
  const auto old_name = absolute_path(from), name = absolute_path(to);
  unsynced_ = moved(unsynced_, old_name, name, exchanged);
  stored_ = moved(stored_, old_name, name, exchanged);
  stored_.erase(name);
  stored_.erase(old_name);
}

}  // namespace tessera

// A program's own functions go before those of the C library, for the program and for the libraries that it loads.

extern "C" {

ssize_t write(int descriptor, const void* bytes, size_t count) {
  if (auto* calls = tessera::FileCalls::current()) calls->written(descriptor);
  return ::syscall(SYS_write, descriptor, bytes, count);
}

int fsync(int descriptor) {
  auto* calls = tessera::FileCalls::current();
  if (calls != nullptr && !calls->synced(descriptor)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int renameat2(int old_folder, const char* from, int folder, const char* to, unsigned int flags) noexcept {
  auto* calls = tessera::FileCalls::current();
  if (calls != nullptr) calls->renaming(from, to);
  const auto result = static_cast<int>(::syscall(SYS_renameat2, old_folder, from, folder, to, flags));
  if (calls != nullptr && result == 0) calls->renamed(from, to, flags == RENAME_EXCHANGE);
  return result;
}

int rename(const char* from, const char* to) noexcept { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
}
