#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/files.h"

namespace tessera::torch {

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

/// Writes such an archive at the end of a file, from its first byte to its last. The data of each entry begins at a
/// multiple of 64 bytes from there, as in torch.
class ArchiveWriter {
 public:
  /// Takes bytes in order.
  using Sink = std::function<void(std::span<const std::byte>)>;
  /// Gives all bytes of an entry to the sink, in order, in pieces of any size.
  using Stream = std::function<void(const Sink&)>;

  /// `file` must outlive this object. Null: nothing is written, and streams are not called; finish() gives the size
  /// that the archive would have.
  explicit ArchiveWriter(File* file) : file_(file) {}

  /// Writes one entry of `bytes` bytes with its checksum. Names must be unique, which read_zip_directory checks. Throws
  /// IoError; BugError if the stream gives another number of bytes.
  void add(const std::string& name, std::uint64_t bytes, const Stream& stream);
  void add(const std::string& name, std::span<const std::byte> bytes);
  void add(const std::string& name, std::string_view words);
  /// Writes the directory and returns the size of the archive, in bytes. Nothing can be added afterwards. Throws
  /// IoError.
  std::uint64_t finish();

 private:
  struct Written {
    std::string name;
    std::uint64_t header, bytes;
    std::uint32_t crc;
  };
  void begin(const std::string& name, bool wide);
  void put(std::span<const std::byte> bytes);
  void put(const std::string& words);

  File* file_;
  std::vector<Written> entries_;
  std::uint64_t at_ = 0;
};

/// Writes a file that is one archive.
class ZipWriter {
 public:
  /// Writes to `<path>_tmp`, which `finish` renames. Reserves disk space for `bytes` bytes. Throws IoError.
  explicit ZipWriter(std::filesystem::path path, std::uint64_t bytes = 0);
  ZipWriter(const ZipWriter&) = delete;
  ZipWriter& operator=(const ZipWriter&) = delete;
  ~ZipWriter();  ///< deletes an unfinished archive

  ArchiveWriter& archive() { return archive_; }  ///< add entries here
  void add(const std::string& name, std::span<const std::byte> bytes) { archive_.add(name, bytes); }
  void add(const std::string& name, std::string_view words) { archive_.add(name, words); }
  /// Writes the directory, syncs the file and renames it to its path, replacing an existing file. Nothing can be added
  /// afterwards. Throws IoError; then the archive keeps its temporary name, and the destructor deletes it.
  void finish();

 private:
  std::filesystem::path path_, unfinished_;
  File file_;
  ArchiveWriter archive_;
  bool finished_ = false;
};

}  // namespace tessera::torch
