#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"

namespace tessera {

/// An open file. Closes itself; every failure is an IoError that names the file, what was tried and the system's
/// reason.
class File {
 public:
  /// For reading. Throws IoError when it cannot be opened.
  static File open(const std::filesystem::path& path);
  /// New and empty, for writing; an older file of that name is emptied.
  static File create(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Append all of `bytes`, in as many calls as the system needs.
  void write(std::span<const std::byte> bytes);
  void write(std::string_view bytes);
  /// Fill `into` from byte `offset`. Throws IoError also when the file ends before. May be called from several threads.
  void read_at(std::uint64_t offset, std::span<std::byte> into) const;
  std::uint64_t size() const;
  /// Set disk space aside for `bytes` from the start, so that a full disk is known before the work. Throws IoError when
  /// there is too little; does nothing on file systems that cannot tell.
  void reserve(std::uint64_t bytes);
  /// Wait until what was written is on the disk.
  void sync();
  /// Close and report what the system has still to say; the destructor would keep it for itself.
  void close();

  const std::filesystem::path& path() const { return path_; }

 private:
  friend class MappedFile;
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The bytes of a file, mapped for reading. Cheap to open whatever its size; pages come in when touched. The file must
/// not shrink meanwhile: a page that is gone ends the process.
class MappedFile {
 public:
  /// Throws IoError when the file cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// The whole content. Throws IoError.
std::string read_file(const std::filesystem::path& path);

/// Put `content` under `path` so that at every moment, also after a crash, either the old or the new content is there:
/// written beside it under another name, synced, renamed, the folder synced. Throws IoError; the old file then stays.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);
/// The same with content that lies in several pieces.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

/// Make the entries of a folder (new files, renames) survive a crash. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

/// What a folder holds, sorted by name; empty when there is no such folder. Throws IoError when it cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// Rename, or exchange with what stands under `to`: a folder is replaced by another in one step. Afterwards `from` is
/// gone or holds what `to` held. Throws IoError.
void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to);

/// Delete a file or a folder with all it holds, or nothing when it is not there. Throws IoError.
void delete_all(const std::filesystem::path& path);

/// Make a folder and those above it. Throws IoError with the system's reason.
void make_folder(const std::filesystem::path& folder);

/// Claim of a living process on a folder: while it lives nobody else gets it, and a process that dies in whatever way
/// lets go. The claim is a lock of the system on `<folder>/in_use`, where the owner's process id and host are written.
class FolderLock {
 public:
  /// Throws ConfigError, naming the owner, when another living process holds it; IoError when the folder is not
  /// writable.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tessera
