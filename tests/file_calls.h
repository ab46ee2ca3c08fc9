#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace tessera {

/// What a crash would leave of a folder, computed from the calls that this process makes to the system: the test
/// program's own write, fsync, rename and renameat2 (file_calls.cpp) are called instead of the C library's and report
/// here. POSIX promises no more than this: the bytes of a file survive a crash if it was synced after they were
/// written, and its name survives if the folder that has it was synced after the file was created or renamed.
///
/// One object at a time. What stands in the folder when it is made counts as stored.
class FileCalls {
 public:
  explicit FileCalls(const std::filesystem::path& folder);
  ~FileCalls();
  FileCalls(const FileCalls&) = delete;
  FileCalls& operator=(const FileCalls&) = delete;

  /// Files and folders in `path`, or `path` itself, that a crash now could lose, sorted, relative to the folder.
  /// `inside`: only what is in `path`, whatever happens to its own name and to those above it.
  std::vector<std::string> lost_by_crash(const std::filesystem::path& path, bool inside = false) const;

  /// Called before each rename. Paths are absolute.
  std::function<void(const std::filesystem::path& from, const std::filesystem::path& to)> before_rename;
  /// Whether this fsync fails, with EIO. `path` is absolute.
  std::function<bool(const std::filesystem::path& path)> sync_fails;

  int syncs() const { return syncs_; }

  // Called by the functions that replace those of the C library.
  void written(int descriptor);
  bool synced(int descriptor);  ///< false: it fails
  void renaming(const char* from, const char* to) const;
  void renamed(const char* from, const char* to, bool exchanged);
  static FileCalls* current();

 private:
  using Paths = std::set<std::filesystem::path>;
  std::filesystem::path folder_;
  Paths unsynced_;  ///< files with bytes that were not synced
  Paths stored_;    ///< files and folders whose names were synced
  int syncs_ = 0;
};

}  // namespace tessera
