#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera::gpt {

/// Element types of an index: those of Megatron-LM's cache files.
enum class IndexType : std::uint8_t { int16, int32, uint32, int64 };
/// NumPy's name: "<i4".
const char* numpy_name(IndexType type);
std::size_t bytes_of(IndexType type);

template <class T>
constexpr IndexType index_type() {
  if constexpr (std::is_same_v<T, std::int16_t>) return IndexType::int16;
  if constexpr (std::is_same_v<T, std::int32_t>) return IndexType::int32;
  if constexpr (std::is_same_v<T, std::uint32_t>) return IndexType::uint32;
  return IndexType::int64;
}

struct NpyHeader;

/// Deleter that unmaps memory (munmap).
struct UnmapPages {
  std::size_t bytes = 0;
  void operator()(void* memory) const;
};

/// The integers of an index: in anonymous memory, or in a mapped NumPy file (.npy), whose pages all processes of a host
/// share. Movable, not copyable.
class IndexArray {
 public:
  IndexArray() = default;
  /// Allocates zero-initialized memory.
  IndexArray(IndexType type, std::vector<std::int64_t> shape);
  /// Maps a .npy file of version 1 to 3. Throws ConfigError, naming the file, if it is not one, its type is not in
  /// IndexType, it has Fortran order, or its size does not match its shape; IoError if it cannot be read.
  static IndexArray map(const std::filesystem::path& file);

  IndexType type() const { return type_; }
  const std::vector<std::int64_t>& shape() const { return shape_; }
  /// Number of elements of all dims together.
  std::int64_t size() const { return size_; }
  std::int64_t operator[](std::int64_t at) const {
    switch (type_) {
      case IndexType::int16:
        return static_cast<const std::int16_t*>(data_)[at];
      case IndexType::int32:
        return static_cast<const std::int32_t*>(data_)[at];
      case IndexType::uint32:
        return static_cast<const std::uint32_t*>(data_)[at];
      case IndexType::int64:
        break;
    }
    return static_cast<const std::int64_t*>(data_)[at];
  }
  /// The values, for writing. Throws BugError if T does not match type(), or the array is a mapped file.
  template <class T>
  std::span<T> values() {
    must(type_ == index_type<T>() && !file_, "an index is written in memory and as its own type");
    return {static_cast<T*>(memory_.get()), static_cast<std::size_t>(size_)};
  }
  template <class T>
  std::span<const T> values() const {
    must(type_ == index_type<T>(), "an index is read as its own type");
    return {static_cast<const T*>(data_), static_cast<std::size_t>(size_)};
  }
  /// Throws IoError if values that were read may be wrong, because the mapped file could not be read.
  void require_pages() const {
    if (file_) file_->require_pages();
  }
  /// The values as little-endian bytes, without a header.
  std::span<const std::byte> bytes() const {
    return {static_cast<const std::byte*>(data_), static_cast<std::size_t>(size_) * bytes_of(type_)};
  }
  /// The header that precedes bytes() in a .npy file, as numpy.save of NumPy 1.23 and later writes it.
  std::string npy_header() const;

 private:
  static IndexArray of(const NpyHeader& header, MappedFile mapped);
  IndexType type_ = IndexType::int32;
  std::vector<std::int64_t> shape_;
  std::int64_t size_ = 0;
  std::unique_ptr<void, UnmapPages> memory_;
  std::optional<MappedFile> file_;
  const void* data_ = nullptr;
};

/// "(10, 2)", as Python writes a tuple.
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace tessera::gpt
