#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace tessera::data {

/// A file that grows at its end through a buffer, can be read back, and can be continued after a crash. Every failure
/// is an IoError with the file name, the attempted operation and the system's reason. The destructor drops what
/// flush() has not written.
class AppendFile {
 public:
  AppendFile() = default;
  /// An empty file; replaces an existing one (see File::create).
  static AppendFile create(const std::filesystem::path& path);
  /// The first `size` bytes of an existing file; the rest is cut off. Throws IoError if it is shorter.
  static AppendFile continued(const std::filesystem::path& path, std::int64_t size);
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  ~AppendFile();

  void append(std::string_view bytes);
  void append(std::span<const std::byte> bytes) {
    append(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  }
  void flush();
  /// Flushes and waits until everything is on the disk (fsync).
  void sync();
  /// Overwrites bytes that are in the file.
  void write_at(std::int64_t offset, std::string_view bytes);
  /// Reads bytes that were flushed.
  void read_at(std::int64_t offset, std::span<std::byte> into) const;
  /// Drops the buffer and everything after the first `size` bytes, which must have been flushed.
  void cut(std::int64_t size);

  /// In bytes, with what is still in the buffer.
  std::int64_t size() const { return written_ + static_cast<std::int64_t>(buffer_.size()); }
  const std::filesystem::path& path() const { return path_; }

 private:
  void write(std::string_view bytes);

  std::filesystem::path path_;
  int descriptor_ = -1;
  std::int64_t written_ = 0;
  std::string buffer_;
};

}  // namespace tessera::data
