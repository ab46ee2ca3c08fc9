#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "framework/base/error.h"

namespace tessera::comm {

/// Memory that several processes of one host map: a file in memory, or a range of one. The others open it through
/// /proc/PID/fd while the creator's descriptor is open. Core dumps do not contain it.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// A new memfd, of zeros; its pages are allocated when they are touched. It has no name in the file system, so
  /// nothing is left behind however its processes end. Throws CommError if the system has no memory.
  static SharedMemory create(std::size_t bytes);
  /// The range [offset, offset + bytes) of an open file, which is at least as long; `offset` is a multiple of the page
  /// size. The descriptor is duplicated. Throws CommError if the system refuses.
  static SharedMemory map(int descriptor, std::size_t offset, std::size_t bytes);
  /// The same range of the file that process `pid` of this host has open under `descriptor`; absent if the system
  /// denies access (other user or container, ptrace restrictions) or the file is shorter.
  static std::optional<SharedMemory> open(int pid, int descriptor, std::size_t offset, std::size_t bytes);

  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t offset() const { return offset_; }  ///< in the file
  int descriptor() const { return descriptor_; }  ///< of the file; -1 if closed
  /// Call it when all processes have opened the memory; the mapping stays.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, offset_ = 0;
  int descriptor_ = -1;
};

}  // namespace tessera::comm
