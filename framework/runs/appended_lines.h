#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace tessera::runs {

/// Reads the lines of a file to which another process appends, each once. Memory: one line and a buffer of 1 MiB. Never
/// writes, and waits for nothing: a path that is no regular file counts as absent.
class AppendedLines {
 public:
  struct Visitor {
    /// The file was cut or replaced, as when a run resumes: all lines follow again.
    std::function<void()> begin_again;
    /// A whole line without its line break. `known`: the first bytes of it that an earlier call had; 0 for a new line.
    /// Not 0 if members were added to the last object (docs/metrics.md), which ended with a brace after these bytes.
    std::function<void(std::string_view line, std::size_t known)> line;
  };

  /// Lines of more than `longest` bytes are skipped and counted.
  AppendedLines(std::filesystem::path file, std::size_t longest);

  /// Visits what is new. False if nothing is. Throws IoError if the file exists and cannot be read.
  bool refresh(const Visitor& visitor);

  bool exists() const { return exists_; }
  /// Time of the last change, in seconds since 1970; 0 if the file does not exist.
  double changed() const { return changed_; }
  std::int64_t too_long() const { return too_long_; }
  /// Bytes after the last line break: a line that is being written, or that a crash left.
  std::uint64_t unfinished() const { return size_ - std::min(size_, end_); }

 private:
  struct Opened;
  enum class LastLine { kept, unfinished, replaced };
  LastLine look_at_last_line(const Opened& opened, const Visitor& visitor);
  void read_from_end(const Opened& opened, const Visitor& visitor);
  void forget();
  void take(std::string_view line, std::uint64_t begin, const Visitor& visitor);

  std::filesystem::path file_;
  std::size_t longest_;
  std::uint64_t device_ = 0, inode_ = 0;
  std::uint64_t size_ = 0;        ///< of the file at the last refresh
  std::uint64_t end_ = 0;         ///< of the last whole line
  std::uint64_t last_begin_ = 0;  ///< of the last whole line, if last_ is not empty
  std::string last_;              ///< the last whole line; empty: none, or too long
  std::int64_t too_long_ = 0;
  double changed_ = 0;
  bool exists_ = false;
};

}  // namespace tessera::runs
