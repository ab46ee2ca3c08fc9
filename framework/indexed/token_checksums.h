#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "framework/base/files.h"

namespace tessera::indexed {

/// PREFIX.crc: checksums (CRC-32C) of PREFIX.idx and of each 64 KiB chunk of PREFIX.bin. docs/data.md describes the
/// format.
class TokenChecksums {
 public:
  static constexpr std::uint64_t chunk_bytes = 64 << 10U;

  static std::string file_of(const std::string& prefix) { return prefix + ".crc"; }
  /// Computes the checksums of a dataset and writes PREFIX.crc. `progress` is called with bytes done and all bytes.
  /// Throws ConfigError if a file is missing, IoError if one cannot be read or written.
  static void write(const std::string& prefix,
                    const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});
  /// Opens PREFIX.crc; nothing if there is no such file. Throws ConfigError if it is damaged or was made for a .bin
  /// file of another size than `data_bytes`.
  static std::optional<TokenChecksums> open(const std::string& prefix, std::uint64_t data_bytes);

  /// Throws ConfigError if `content`, that of the .idx file, does not match its checksum.
  void check_index(std::span<const std::byte> content) const;
  std::int64_t chunks() const { return static_cast<std::int64_t>((data_bytes_ + chunk_bytes - 1) / chunk_bytes); }
  /// Position of chunk `chunk` in the .bin file, in bytes.
  std::uint64_t first_of(std::int64_t chunk) const { return static_cast<std::uint64_t>(chunk) * chunk_bytes; }
  /// Size of chunk `chunk`, in bytes.
  std::size_t bytes_of(std::int64_t chunk) const;
  /// Throws BadSampleError if `sum`, the computed checksum of chunk `chunk`, differs from the stored one.
  void check(std::int64_t chunk, std::uint32_t sum) const;

 private:
  TokenChecksums(std::string prefix, MappedFile file, std::uint64_t data_bytes)
      : prefix_(std::move(prefix)), file_(std::move(file)), data_bytes_(data_bytes) {}
  std::string prefix_;
  MappedFile file_;
  std::uint64_t data_bytes_;
};

/// Verifies all checksums of a dataset. `progress` is called with bytes done and all bytes. Throws ConfigError, naming
/// the first difference, also if there is no PREFIX.crc.
void verify_checksums(const std::string& prefix,
                      const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::indexed
