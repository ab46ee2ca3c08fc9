#pragma once

#include <filesystem>
#include <string_view>

#include "framework/files/append_file.h"

namespace tessera::files {

/// A new file that gets its final name when it is finished: it is written as <name>.unfinished, synced and renamed. If
/// the object is destroyed before, the unfinished file is deleted, and an older file of the name is unchanged.
class UnfinishedFile {
 public:
  /// Throws ConfigError if the file cannot be created, or another process is writing it.
  explicit UnfinishedFile(const std::filesystem::path& name);
  UnfinishedFile(const UnfinishedFile&) = delete;
  UnfinishedFile& operator=(const UnfinishedFile&) = delete;
  ~UnfinishedFile();

  /// The temporary name under which `name` is written.
  static std::filesystem::path temporary(const std::filesystem::path& name);

  /// Appends `bytes`. Throws IoError, for instance if the disk is full.
  void write(std::string_view bytes) { file_.append(bytes); }
  /// Syncs the content to disk and renames the file. Throws IoError, also if another process has replaced it.
  void finish();

 private:
  std::filesystem::path name_;
  AppendFile file_;
  bool finished_ = false;
};

}  // namespace tessera::files
