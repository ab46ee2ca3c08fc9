#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "framework/base/error.h"

namespace tessera::comm {

/// Memory that several processes of one host map (memfd). It has no name in the file system, so nothing is left behind
/// however they end: the creator lets the others open it through /proc/PID/fd while its descriptor is open. Initially
/// zeros; pages are allocated when they are touched.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Throws CommError if the system has no memory.
  static SharedMemory create(std::size_t bytes);
  /// The memory that process `pid` of this host has created under `descriptor`; absent if the system denies access
  /// (other user or container, ptrace restrictions) or the size differs.
  static std::optional<SharedMemory> open(int pid, int descriptor, std::size_t bytes);

  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }  ///< -1 if closed
  /// Call it when all processes have opened the memory; the mapping stays.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace tessera::comm
