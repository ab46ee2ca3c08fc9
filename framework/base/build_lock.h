#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tessera {

/// An exclusive file lock (flock), with which one process of a file system builds a file while the others wait. The
/// system releases it however the process ends. The lock file contains the owner's process id and host, for messages;
/// it is deleted when the lock is released.
class BuildLock {
 public:
  /// Takes the lock; nothing if another process holds it. Throws IoError if the file cannot be created. On a file
  /// system without locks every process gets a lock: all build, each under its own temporary names.
  static std::optional<BuildLock> try_take(const std::filesystem::path& file);
  /// Takes the lock as soon as no other process holds it.
  static BuildLock take(const std::filesystem::path& file);
  /// The owner of a lock file: "process 12 on host a", or "another process" if unknown.
  static std::string owner(const std::filesystem::path& file);

  BuildLock(BuildLock&& other) noexcept;
  BuildLock& operator=(BuildLock&& other) = delete;
  ~BuildLock();

 private:
  BuildLock(std::filesystem::path file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tessera
