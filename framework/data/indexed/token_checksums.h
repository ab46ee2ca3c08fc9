#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "framework/base/files.h"

namespace tessera::data {

/// PREFIX.crc: checksums (CRC-32C) of PREFIX.idx and of PREFIX.bin in chunks of 64 KiB. The format: docs/data.md.
class TokenChecksums {
 public:
  static constexpr std::uint64_t chunk_bytes = 64 << 10U;

  static std::string file_of(const std::string& prefix) { return prefix + ".crc"; }
  /// Computes the checksums of a dataset and writes PREFIX.crc. `progress` is told bytes done and all. Throws
  /// ConfigError if a file is missing, IoError if one cannot be read or written.
  static void write(const std::string& prefix,
                    const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});
  /// Of PREFIX.crc; absent if there is no such file. Throws ConfigError if it is damaged or belongs to a .bin file of
  /// another size.
  static std::optional<TokenChecksums> open(const std::string& prefix, std::uint64_t data_bytes);

  /// Throws ConfigError if the .idx file has another content.
  void check_index(std::span<const std::byte> content) const;
  std::int64_t chunks() const { return static_cast<std::int64_t>((data_bytes_ + chunk_bytes - 1) / chunk_bytes); }
  /// Bytes [first, first + count) of the .bin file are chunk `chunk`.
  std::uint64_t first_of(std::int64_t chunk) const { return static_cast<std::uint64_t>(chunk) * chunk_bytes; }
  std::size_t bytes_of(std::int64_t chunk) const;
  /// Throws BadSampleError if the chunk, whose checksum was computed as `sum`, should have another one.
  void check(std::int64_t chunk, std::uint32_t sum) const;

 private:
  TokenChecksums(std::string prefix, MappedFile file, std::uint64_t data_bytes)
      : prefix_(std::move(prefix)), file_(std::move(file)), data_bytes_(data_bytes) {}
  std::string prefix_;
  MappedFile file_;
  std::uint64_t data_bytes_;
};

/// Compares all of a dataset with PREFIX.crc. Throws ConfigError, naming the first difference, and if there is no
/// PREFIX.crc.
void verify_checksums(const std::string& prefix,
                      const std::function<void(std::int64_t done, std::int64_t all)>& progress = {});

}  // namespace tessera::data
