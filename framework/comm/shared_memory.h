#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "framework/base/error.h"

namespace tessera::comm {

/// Memory that several processes of one host map: a file in memory (memfd), or a range of one. Other processes open it
/// through /proc/PID/fd while the creator's descriptor is open. Core dumps do not contain it. Unmaps the memory and
/// closes the descriptor when destroyed.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Creates a memfd filled with zeros; its pages are allocated when they are first accessed. It has no name in the
  /// file system, so nothing is left behind when its processes end. Throws CommError if the system has no memory.
  static SharedMemory create(std::size_t bytes);
  /// Maps the range [offset, offset + bytes) of an open file, which must be at least as long; `offset` is a multiple of
  /// the page size. The descriptor is duplicated. Throws CommError if the system refuses.
  static SharedMemory map(int descriptor, std::size_t offset, std::size_t bytes);
  /// Maps the same range of the file that process `pid` of this host has open as `descriptor`. Absent if the system
  /// denies access (other user or container, ptrace restrictions) or the file is shorter.
  static std::optional<SharedMemory> open(int pid, int descriptor, std::size_t offset, std::size_t bytes);

  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  std::size_t offset() const { return offset_; }  ///< offset of the range in the file, in bytes
  int descriptor() const { return descriptor_; }  ///< descriptor of the file; -1 if closed
  /// Closes the descriptor; the mapping stays. Call it when all processes have opened the memory.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0, offset_ = 0;
  int descriptor_ = -1;
};

}  // namespace tessera::comm
