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

/// The sum that zip archives keep for each entry: CRC-32 (IEEE 802.3, reflected 0xEDB88320); of "123456789" 0xCBF43926.
/// `before` is the sum of the bytes that came earlier.
std::uint32_t crc32_ieee(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// Where the bytes of one entry lie in an archive.
struct ZipEntry {
  std::uint64_t begin = 0, bytes = 0;
  std::uint32_t crc = 0;
};

/// The entries of a zip archive, by name, as torch.save writes one: stored without compression; with 64-bit extensions
/// where it is large. Throws ConfigError, beginning with `speaker`, for anything else or damaged: no archive, cut
/// short, offsets outside of it, compressed or encrypted entries, a name given twice, more than a million entries.
/// Source: PKWARE's APPNOTE 6.3.
std::map<std::string, ZipEntry> read_zip_directory(std::span<const std::byte> archive, const std::string& speaker);

/// Writes such an archive. The data of each entry begins at a multiple of 64, as torch does it.
class ZipWriter {
 public:
  /// Into `<path>_tmp`; `finish` gives it its name. Throws IoError.
  explicit ZipWriter(std::filesystem::path path);
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;
  ~ZipWriter();  ///< what was not finished is deleted

  /// Writes one entry and its sum; the bytes are not kept. Names must differ, which read_zip_directory checks. Throws
  /// IoError.
  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view words);
  /// Writes the directory, brings the file to the disk and renames it to its path, replacing a file there. Nothing can
  /// be added then. Throws IoError; the archive keeps its unfinished name, and the destructor deletes it.
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
