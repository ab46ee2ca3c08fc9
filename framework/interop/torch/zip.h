#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"

namespace tessera::torch {

/// The checksum of entries in zip archives: CRC-32 (IEEE 802.3, reflected 0xEDB88320); 0xCBF43926 for "123456789".
/// `before` is the checksum of the preceding bytes.
std::uint32_t crc32_ieee(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Position of the data of one entry in an archive, in bytes.
struct ZipEntry {
  std::uint64_t begin = 0, bytes = 0;
  std::uint32_t crc = 0;
};

/// The entries, by name, of a zip archive in the form that torch.save writes: uncompressed; with 64-bit extensions if
/// large. Throws ConfigError, beginning with `speaker`, for other or damaged input: not an archive, truncated, offsets
/// outside of it, compressed or encrypted entries, duplicate names, more than a million entries. Source: PKWARE's
/// APPNOTE 6.3.
std::map<std::string, ZipEntry> read_zip_directory(std::span<const std::byte> archive, const std::string& speaker);

/// Writes such an archive. The data of each entry begins at a multiple of 64 bytes, as in torch.
class ZipWriter {
 public:
  /// Writes to `<path>_tmp`, which `finish` renames. Throws IoError.
  explicit ZipWriter(std::filesystem::path path);
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;
  ~ZipWriter();  ///< deletes an unfinished archive

  /// Writes one entry with its checksum; `bytes` are not kept. Names must be unique, which read_zip_directory checks.
  /// Throws IoError.
  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view words);
  /// Writes the directory, syncs the file and renames it to its path, replacing an existing file. Nothing can be added
  /// afterwards. Throws IoError; then the archive keeps its temporary name, and the destructor deletes it.
  void finish();

 private:
  struct Written {
    std::string name;
    std::uint64_t header, bytes;
    std::uint32_t crc;
  };
  std::filesystem::path path_, unfinished_;
  File file_;
  std::vector<Written> entries_;
  std::uint64_t at_ = 0;
  bool finished_ = false;
};

}  // namespace tessera::torch
