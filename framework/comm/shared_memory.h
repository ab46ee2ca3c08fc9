#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>

#include "framework/base/error.h"

namespace tessera {

/// Memory that several processes of one host map. It has no name, so nothing stays behind however they end: whoever
/// made it lets the others open it through /proc while it lives. Zeros at first; pages are taken when touched.
class SharedMemory {
 public:
  SharedMemory() = default;
  /// Throws CommError when the system has none.
  static SharedMemory create(std::size_t bytes);
  /// What process `pid` of this host has made under `descriptor`; nothing when the system does not let us.
  static std::optional<SharedMemory> open(int pid, int descriptor, std::size_t bytes);

  SharedMemory(SharedMemory&&) noexcept;
  SharedMemory& operator=(SharedMemory&&) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  int descriptor() const { return descriptor_; }  ///< -1 when closed
  /// When all have opened it; the memory stays.
  void close_descriptor();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int descriptor_ = -1;
};

}  // namespace tessera
