#include "framework/worker/shared_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/system_call.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr auto pause = std::chrono::milliseconds(5);
constexpr int most_tries = 400;  // of `pause`: another process deletes the folder meanwhile, which takes milliseconds

/// Locks of open file descriptions end with the last process that has the description, and can be tested. On a file
/// system without locks every user takes itself for the only one.
bool locks(int file, int command, short type) {
  struct flock lock = {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  if (uninterrupted([&] { return fcntl(file, command, &lock); }) != 0)
    return errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP;
  return command != F_OFD_GETLK || lock.l_type == F_UNLCK;
}

fs::path users_of(const fs::path& folder) { return folder / SharedFolder::users_file; }

int open_users(const fs::path& folder, int create) {
  return uninterrupted([&] { return open(users_of(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | create, 0600); });
}

/// Whether the file is still the one in the folder: a user that deletes the folder holds the lock of the old one.
bool is_current(int file, const fs::path& folder) {
  struct stat ours = {}, there = {};
  return fstat(file, &ours) == 0 && lstat(users_of(folder).c_str(), &there) == 0 && ours.st_ino == there.st_ino &&
         ours.st_dev == there.st_dev;
}

/// Opens and locks the file; -1 if the folder does not exist or is being deleted.
int lock_users(const fs::path& folder, int create, short type) {
  const int file = open_users(folder, create);
  if (file < 0) return -1;
  if (locks(file, F_OFD_SETLK, type) && is_current(file, folder)) return file;
  close(file);
  return -1;
}

void remove_content(const fs::path& folder) {
  std::error_code ignored;
  for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
    std::error_code left;  // then it is tried again
    if (entry->path().filename() != SharedFolder::users_file) fs::remove_all(entry->path(), left);
  }
}

/// The caller holds the exclusive lock. The file with the locks goes last: until then a new user waits for the lock,
/// and afterwards it has a file of its own, so that the folder is not empty and stays. Others may still create files.
void remove_folder(const fs::path& folder) {
  std::error_code ignored;
  for (int tries = 0; tries < most_tries; ++tries) {
    remove_content(folder);
    unlink(users_of(folder).c_str());
    if (rmdir(folder.c_str()) == 0 || errno != ENOTEMPTY || fs::exists(users_of(folder), ignored)) return;
    std::this_thread::sleep_for(pause);
  }
}

}  // namespace

SharedFolder SharedFolder::make(const fs::path& path) {
  int error = 0;
  for (int tries = 0; tries < most_tries; ++tries) {
    if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      error = errno;
      break;
    }
    errno = 0;
    if (const int lock = lock_users(path, O_CREAT, F_RDLCK); lock >= 0) return {path, lock};
    error = errno;
    if (error == EMFILE || error == ENFILE || error == ENOSPC || error == EACCES || error == ENOTDIR) break;
    std::this_thread::sleep_for(pause);
  }
  throw ConfigError(text(path.string(), " cannot be made: ", std::strerror(error)));
}

SharedFolder SharedFolder::use(const fs::path& path) {
  if (path.empty()) return {path, -1};
  return {path, lock_users(path, 0, F_RDLCK)};
}

SharedFolder::SharedFolder(SharedFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)), kept_(other.kept_) {}

// The lock is given up first: of two users that leave at the same time, at least the later one then finds no other.
SharedFolder::~SharedFolder() {
  if (lock_ < 0) return;
  close(lock_);
  if (!kept_) remove_unless_used(path_);
}

bool SharedFolder::has_other_users() const { return lock_ >= 0 && !locks(lock_, F_OFD_GETLK, F_WRLCK); }

bool SharedFolder::is_used(const fs::path& path) {
  const int file = open_users(path, 0);
  if (file < 0) return false;
  const bool used = !locks(file, F_OFD_GETLK, F_WRLCK);
  close(file);
  return used;
}

bool SharedFolder::remove_unless_used(const fs::path& path) {
  std::error_code ignored;
  const int lock = lock_users(path, 0, F_WRLCK);
  if (lock < 0 && fs::exists(users_of(path), ignored)) return false;
  remove_folder(path);
  if (lock >= 0) close(lock);
  return !fs::exists(path, ignored);
}

}  // namespace tessera::worker
