#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tessera::data {

/// An exclusive lock by which one process of a file system builds something while the others wait. The system releases
/// it however the process ends (flock). Its file holds the owner's process and host for messages; it is deleted with
/// the lock.
class BuildLock {
 public:
  /// The lock, or null if another process holds it. Throws IoError if the file cannot be made there. On a file system
  /// without locks every process gets one: all build, each under names of its own.
  static std::optional<BuildLock> try_take(const std::filesystem::path& file);
  /// "process 12 on host a", or "another process" if that is not known.
  static std::string owner(const std::filesystem::path& file);

  BuildLock(BuildLock&& other) noexcept;
  BuildLock& operator=(BuildLock&& other) = delete;
  ~BuildLock();

 private:
  BuildLock(std::filesystem::path file, int descriptor) : file_(std::move(file)), descriptor_(descriptor) {}
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tessera::data
