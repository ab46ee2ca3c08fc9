#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tessera::files {

/// A file for buffered appending that can be read back, and continued after a crash. It holds a lock (flock) on the
/// file while it lives, so that no two processes write to one file; the system releases it however the process ends.
/// Every failure is an IoError with the file name, the attempted operation and the system's reason. The destructor
/// discards data that flush() has not written.
class AppendFile {
 public:
  AppendFile() = default;
  /// Creates an empty file; replaces an existing one (see File::create). Throws ConfigError, naming the process if the
  /// system knows it, if another AppendFile has the existing one.
  static AppendFile create(const std::filesystem::path& path);
  /// Opens an existing file and truncates it to `size` bytes. Throws IoError if it is shorter, and
  /// ConfigError as create() does.
  static AppendFile continued(const std::filesystem::path& path, std::int64_t size);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  void append(std::string_view bytes);
  void append(std::span<const std::byte> bytes) {
    append(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  /// Writes the buffer to the file.
  void flush();
  /// Flushes and waits until everything is on the disk (fsync).
  void sync();
  /// Overwrites existing bytes of the file at `offset`.
  void write_at(std::int64_t offset, std::string_view bytes);
  /// Reads bytes at `offset`, which must have been flushed.
  void read_at(std::int64_t offset, std::span<std::byte> into) const;
  /// Truncates the file to `size` bytes, which must have been flushed, and discards the buffer.
  void cut(std::int64_t size);

  /// Whether the name still leads to this file; false if another process has replaced, renamed or removed it.
  bool has_its_name() const;
  /// Throws IoError if has_its_name() is false. Call this before the file is renamed.
  void require_its_name() const;
  /// Throws ConfigError if an AppendFile has the file `path`, which need not exist.
  static void refuse_if_open(const std::filesystem::path& path);

  /// Size in bytes, including the buffer.
  std::int64_t size() const { return written_ + static_cast<std::int64_t>(buffer_.size()); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void lock();
  void write(std::string_view bytes);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t written_ = 0;
  std::string buffer_;
};

}  // namespace tessera::files
