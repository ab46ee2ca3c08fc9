#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::gpt {

/// What every NumPy file begins with; the version follows.
inline constexpr std::string_view npy_magic = "\x93NUMPY";

/// The header of a NumPy file (.npy) of format version 1, 2 or 3.
struct NpyHeader {
  std::string type;  ///< NumPy's name: "<i4"
  bool fortran_order = false;
  std::vector<std::int64_t> shape;  ///< empty: a single value
  std::size_t values_at = 0;        ///< offset of the first value in the file, in bytes
};

/// Reads the header at the begin of a file: the magic bytes, the version, and a Python dictionary with exactly the keys
/// descr, fortran_order and shape, in any order. Works in linear time and accepts at most 64 KiB of dictionary. Throws
/// ConfigError, which does not name the file, if the header is something else, is cut off, or describes records.
NpyHeader parse_npy_header(std::span<const std::byte> file);

}  // namespace tessera::gpt
