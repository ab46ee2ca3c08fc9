#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/mapped_access.h"

namespace tessera {

/// An open file, closed by the destructor. Every failure is an IoError with the file name, the attempted operation and
/// the system's reason.
class File {
 public:
  /// Opens for reading. Throws IoError if it cannot be opened.
  static File open(const std::filesystem::path& path);
  /// Creates an empty file for writing. Replaces an existing file or symbolic link; the link's target and hard links
  /// keep their content.
  static File create(const std::filesystem::path& path);

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  /// Appends all of `bytes`.
  void write(std::span<const std::byte> bytes);
  /// Appends all characters of `bytes`.
  void write(std::string_view bytes);
  /// Reads into.size() bytes from byte `offset`. Throws IoError also if the file is shorter. May be called from several
  /// threads.
  void read_at(std::uint64_t offset, std::span<std::byte> into) const;
  /// Size of the file, in bytes.
  std::uint64_t size() const;
  /// Reserves disk space for the first `bytes` bytes of the file, so that a full disk is detected before the data is
  /// written (fallocate); on tmpfs only looks whether there is room. Throws IoError if not; nothing without fallocate.
  void reserve(std::uint64_t bytes);
  /// Has the system begin to bring what was written to the disk, and does not wait for it. Nothing is sure, and no
  /// error known, before sync().
  void start_sync();
  /// Waits until everything written is on the disk (fsync).
  void sync();
  /// Closes the file and reports errors that the system signals only now; the destructor ignores them.
  void close();

  const std::filesystem::path& path() const { return path_; }

 private:
  friend class MappedFile;
  File(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  std::filesystem::path path_;
  int descriptor_ = -1;
};

/// The path that File::open or MappedFile opened last in this process, for the message that memory ran out; empty if
/// there is none. Thread-safe.
std::filesystem::path last_opened_file();

/// A read-only memory mapping of a file. Opening is cheap for any size; pages are loaded when accessed. The file should
/// not shrink while it is mapped. If it does, or its disk fails, the missing pages read as zeros
/// (base/mapped_access.h); require_intact() tells.
class MappedFile {
 public:
  /// Throws IoError if the file cannot be opened or mapped.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// The content of the file; valid as long as this object lives.
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  /// Throws IoError if a page could not be read, or the file is now shorter. Call this after reading from bytes(), and
  /// before the result is used; also when what was read seems to be wrong, because this is then the cause.
  void require_intact() const;
  /// The part of require_intact() without a system call: nothing is known of a file that shrank within its last page.
  void require_pages() const {
    if (guard_.lost_pages()) refuse_lost_pages();
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  [[noreturn]] void refuse_lost_pages() const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::uint64_t device_ = 0, inode_ = 0;
  GuardedMapping guard_;
};

/// `read()`, which reads from `file` and may throw because of zeros that replaced missing pages: an IoError of
/// require_intact() then takes the place of its error or its result.
template <class Read>
auto read_intact(const MappedFile& file, const Read& read) {
  try {
    auto result = read();
    file.require_intact();
    return result;
  } catch (const Error&) {
    file.require_intact();
    throw;
  }
}

/// Throws IoError, naming the file, if a mapped file of this process lost pages and no require_intact() or
/// require_pages() has reported it. Call this before a result is published that was computed from mapped files.
void require_no_lost_pages();

/// The whole content of a file. Throws IoError; ConfigError if it does not fit into memory.
std::string read_file(const std::filesystem::path& path);

/// Replaces the content of `path` atomically: at any time, also after a crash, the file has either the old or the new
/// content. Writes to another name in the same folder, syncs, renames, and syncs the folder. A symbolic link is
/// replaced, not followed. Throws IoError, also if `path` is a device or a pipe; the old file then remains.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Whether the path names the file, pipe or device to which standard output goes, such as /dev/stdout.
bool is_standard_output(const std::filesystem::path& path);

/// Writes the output of a command to the name that the user gave. A file is replaced atomically, also one behind a
/// symbolic link, which remains; standard output, another device or a pipe is written to. Throws IoError.
void write_output(const std::filesystem::path& path, std::string_view content);

/// The last name of the path of a folder, also if it is given as "run/" or ".".
std::string name_of_folder(const std::filesystem::path& folder);

/// Whether `part` can be a part of the name of one file: it has no '/' and no control characters, and at most 128
/// bytes, so that the name is not too long for the file system (255 bytes).
bool is_part_of_file_name(std::string_view part);
/// Does the same with content in several pieces, which are written one after the other.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::span<const std::byte>> pieces);

/// Makes the entries of a folder (new files, renames) durable. Throws IoError.
void sync_folder(const std::filesystem::path& folder);

/// The entries of a folder, sorted by name; empty if there is no such folder. Throws IoError if it cannot be read.
std::vector<std::filesystem::path> list_folder(const std::filesystem::path& folder);

/// Renames `from` to `to`; if `to` exists, exchanges the two atomically, so that a folder is replaced in one step.
/// Afterwards `from` does not exist, or holds the former content of `to`. Throws IoError.
void rename_or_exchange(const std::filesystem::path& from, const std::filesystem::path& to);

/// Deletes a file, or a folder with its content; does nothing if it does not exist. Symbolic links are not followed.
/// Throws IoError.
void delete_all(const std::filesystem::path& path);

/// Throws ConfigError, naming both paths, if a command would overwrite its own input: if one of `outputs` is the same
/// file or folder as one of `inputs`, or a folder that contains one, also through a symbolic link, a hard link or
/// another spelling of the path; or if two outputs have the same name. Temporary names of outputs (with _tmp at the
/// end) count as outputs. A path that does not exist is no input. Call this before anything is written.
void refuse_overwriting(std::span<const std::filesystem::path> inputs, std::span<const std::filesystem::path> outputs);

/// Creates a folder and its parents, and syncs the parent of each new folder, so that its name survives a crash. Throws
/// IoError with the system's reason.
void make_folder(const std::filesystem::path& folder);

/// An exclusive lock on a folder, held while this object and its process live; the system releases it however the
/// process ends. It is an flock on `<folder>/in_use`, which contains the owner's process id and host for error
/// messages.
class FolderLock {
 public:
  /// Locks `folder`, which must exist. Throws ConfigError, naming the owner, if the lock is already held; IoError if
  /// the folder is not writable.
  explicit FolderLock(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) = delete;
  ~FolderLock();

 private:
  std::filesystem::path file_;
  int descriptor_ = -1;
};

}  // namespace tessera
