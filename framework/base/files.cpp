#include "framework/base/files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <mutex>
#include <set>
#include <sstream>
#include <utility>

#include "framework/base/folder_use.h"
#include "framework/base/memory_limit.h"
#include "framework/base/system_call.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const char* attempt, int reason = errno) {
  throw IoError(text(path.string(), ": ", attempt, ": ", std::strerror(reason)));
}

[[noreturn]] void refuse_lost(const fs::path& path) {
  throw IoError(text(path.string(),
                     ": cannot be read (SIGBUS); it was truncated after it was opened, or its disk or memory failed"));
}

int open_or_refuse(const fs::path& path, int flags, const char* attempt) {
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (descriptor < 0) refuse(path, attempt);
  return descriptor;
}

/// Name that write_file_atomic writes to before it renames.
fs::path name_beside(const fs::path& path) { return path.string() + "_tmp"; }

std::uint64_t size_of_open(const fs::path& path, int descriptor) {
  struct stat facts {};
  if (::fstat(descriptor, &facts) != 0) refuse(path, "cannot be examined");
  if (S_ISDIR(facts.st_mode)) refuse(path, "cannot be read", EISDIR);
  return static_cast<std::uint64_t>(facts.st_size);
}

std::mutex last_opened_mutex;
std::string last_opened;

}  // namespace

fs::path last_opened_file() {
  const std::lock_guard lock(last_opened_mutex);
  return last_opened;
}

File File::open(const fs::path& path) {
  File file(path, open_or_refuse(path, O_RDONLY, "cannot be opened"));
  const std::lock_guard lock(last_opened_mutex);
  last_opened = path.string();
  return file;
}

/// A regular file or a link of that name is unlinked first, so that what else leads to its bytes keeps them; a device
/// or pipe is opened as it is.
File File::create(const fs::path& path) {
  struct stat facts {};
  const bool there = ::lstat(path.c_str(), &facts) == 0;
  if (there && !S_ISREG(facts.st_mode) && !S_ISLNK(facts.st_mode))
    return {path, open_or_refuse(path, O_WRONLY, "cannot be written")};
  if (there && ::unlink(path.c_str()) != 0) refuse(path, "cannot be replaced");
  return {path, open_or_refuse(path, O_WRONLY | O_CREAT | O_EXCL, "cannot be written")};
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto done = uninterrupted([&] { return ::write(descriptor_, bytes.data(), bytes.size()); });
    if (done < 0) refuse(path_, "cannot be written");
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
}

void File::write(std::string_view bytes) { write(std::as_bytes(std::span(bytes.data(), bytes.size()))); }

void File::read_at(std::uint64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto done =
        uninterrupted([&] { return ::pread(descriptor_, into.data(), into.size(), static_cast<off_t>(offset)); });
    if (done < 0) refuse(path_, "cannot be read");
    if (done == 0)
      throw IoError(text(path_.string(), ": ends at byte ", offset, "; expected ", into.size(), " more bytes"));
    into = into.subspan(static_cast<std::size_t>(done));
    offset += static_cast<std::uint64_t>(done);
  }
}

std::uint64_t File::size() const { return size_of_open(path_, descriptor_); }

namespace {

/// Whether a file is in memory; then `fits` is whether `bytes` more have room.
bool is_in_memory(int descriptor, std::uint64_t bytes, bool& fits) {
  struct statfs facts {};
  if (::fstatfs(descriptor, &facts) != 0 || facts.f_type != TMPFS_MAGIC) return false;
  fits = facts.f_blocks == 0 || bytes / static_cast<std::uint64_t>(facts.f_bsize) <= facts.f_bavail;  // 0: no limit
  return true;
}

}  // namespace

// fallocate and not posix_fallocate: the latter would write zeros where the file system has no reservation. In memory,
// pages that are reserved have to be found again by the writes, which makes them an eighth slower: there the room is
// only looked at.
void File::reserve(std::uint64_t bytes) {
  if (bytes == 0) return;
  if (bool fits = true; is_in_memory(descriptor_, bytes, fits)) {
    errno = ENOSPC;
    if (!fits) refuse(path_, "cannot be written");
    return;
  }
  const int result = uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)); });
  if (result != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL) refuse(path_, "cannot be written");
}

void File::start_sync() { ::sync_file_range(descriptor_, 0, 0, SYNC_FILE_RANGE_WRITE); }

void File::sync() {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) refuse(path_, "cannot be brought to the disk");
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) refuse(path_, "cannot be closed");
}

MappedFile::MappedFile(const fs::path& path) : path_(path) {
  const auto file = File::open(path);
  size_ = static_cast<std::size_t>(file.size());
  if (size_ == 0) return;  // mmap fails for an empty mapping
  void* at = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor_, 0);
  if (at == MAP_FAILED) refuse(path, "cannot be mapped");
  data_ = static_cast<const std::byte*>(at);
  struct stat facts {};
  if (::fstat(file.descriptor_, &facts) == 0) {
    device_ = facts.st_dev;
    inode_ = facts.st_ino;
  }
  guard_ = GuardedMapping(at, size_, path);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      device_(other.device_),
      inode_(other.inode_),
      guard_(std::move(other.guard_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(device_, other.device_);
  std::swap(inode_, other.inode_);
  std::swap(guard_, other.guard_);
  return *this;
}

MappedFile::~MappedFile() {
  guard_ = GuardedMapping();
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::refuse_lost_pages() const { refuse_lost(path_); }

// Another file under this name does not matter: the mapping has the former one.
void MappedFile::require_intact() const {
  require_pages();
  struct stat facts {};
  if (size_ == 0 || ::stat(path_.c_str(), &facts) != 0 || facts.st_dev != device_ || facts.st_ino != inode_) return;
  if (const auto now = static_cast<std::uint64_t>(facts.st_size); now < size_)
    throw IoError(text(path_.string(), ": was truncated from ", size_, " to ", now, " bytes after it was opened"));
}

void require_no_lost_pages() {
  if (const auto file = take_unreported_loss(); !file.empty()) refuse_lost(file);
}

std::string read_file(const fs::path& path) {
  const auto file = File::open(path);
  std::string content;
  within_memory(path.string(), [&] { content.resize(static_cast<std::size_t>(file.size())); });
  file.read_at(0, std::as_writable_bytes(std::span(content.data(), content.size())));
  return content;
}

void write_file_atomic(const fs::path& path, std::string_view content) {
  const auto bytes = std::as_bytes(std::span(content.data(), content.size()));
  write_file_atomic(path, std::span(&bytes, 1));
}

void write_file_atomic(const fs::path& path, std::span<const std::span<const std::byte>> pieces) {
  const fs::path beside = name_beside(path);
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISLNK(facts.st_mode))
    throw IoError(text(path.string(), ": cannot be replaced: is a ",
                       S_ISDIR(facts.st_mode) ? "folder" : "device or pipe, not a file"));
  try {
    auto file = File::create(beside);
    for (const auto& piece : pieces) file.write(piece);
    file.sync();
    file.close();
    if (::rename(beside.c_str(), path.c_str()) != 0) refuse(path, "cannot be replaced");
  } catch (const Error&) {
    ::unlink(beside.c_str());
    throw;
  }
  sync_folder(path.parent_path());
}

bool is_standard_output(const fs::path& path) {
  struct stat named {};
  struct stat own {};
  return ::stat(path.c_str(), &named) == 0 && ::fstat(STDOUT_FILENO, &own) == 0 && named.st_dev == own.st_dev &&
         named.st_ino == own.st_ino;
}

void write_output(const fs::path& path, std::string_view content) {
  std::error_code unknown;
  if (is_standard_output(path)) {  // perhaps a file that a shell appends to
    if (!write_all(STDOUT_FILENO, content)) refuse(path, "cannot be written");
    return;
  }
  if (!fs::exists(path, unknown) || fs::is_directory(path, unknown)) return write_file_atomic(path, content);
  if (fs::is_regular_file(path, unknown)) return write_file_atomic(fs::canonical(path), content);
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), O_WRONLY | O_CLOEXEC); });
  const bool good = descriptor >= 0 && write_all(descriptor, content);
  const auto why = errno;
  const bool closed = descriptor < 0 || ::close(descriptor) == 0;
  if (!good || !closed) refuse(path, "cannot be written", good ? errno : why);
}

std::string name_of_folder(const fs::path& folder) {
  const auto path = fs::absolute(folder).lexically_normal();
  return (path.filename().empty() ? path.parent_path() : path).filename().string();
}

void sync_folder(const fs::path& folder) {
  const fs::path path = folder.empty() ? "." : folder;
  const int descriptor = open_or_refuse(path, O_RDONLY | O_DIRECTORY, "cannot be opened");
  const int result = uninterrupted([&] { return ::fsync(descriptor); });
  const int reason = errno;
  ::close(descriptor);
  if (result != 0 && reason != EINVAL)
    refuse(path, "cannot be brought to the disk", reason);  // some mounts sync no folders
}

std::vector<fs::path> list_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  if (!fs::exists(folder, error)) return entries;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    entries.push_back(at->path());
  if (error) throw IoError(text(folder.string(), ": cannot be listed: ", error.message()));
  std::sort(entries.begin(), entries.end());
  return entries;
}

void rename_or_exchange(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return;
  if (errno != ENOTEMPTY && errno != EEXIST) refuse(to, "cannot be replaced");
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) refuse(to, "cannot be replaced");
  delete_all(to);  // this file system cannot exchange: for a moment neither name exists
  if (::rename(from.c_str(), to.c_str()) != 0) refuse(to, "cannot be replaced");
}

void delete_all(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw IoError(text(path.string(), ": cannot be deleted: ", error.message()));
}

void refuse_overwriting(std::span<const fs::path> inputs, std::span<const fs::path> outputs) {
  const auto same = [](const fs::path& a, const fs::path& b) {
    std::error_code none;
    return fs::equivalent(a, b, none);
  };
  for (const auto& output : outputs)
    for (const auto& input : inputs) {
      std::error_code none;
      for (auto at = fs::canonical(input, none); !at.empty(); at = at == at.parent_path() ? "" : at.parent_path())
        if (same(at, output) || same(at, name_beside(output)))
          throw ConfigError(text(output.string(), ": this output would overwrite the input ", input.string(),
                                 "; give another name for the output"));
    }
  std::set<fs::path> names;
  for (const auto& output : outputs)
    if (!names.insert(fs::absolute(output).lexically_normal()).second)
      throw ConfigError(text(output.string(), ": two outputs have this name; give each a name of its own"));
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> absent;
  for (auto at = folder; !at.empty() && !fs::exists(at, error); at = at.parent_path()) absent.push_back(at);
  fs::create_directories(folder, error);
  if (error) throw IoError(text(folder.string(), ": cannot be made: ", error.message()));
  for (const auto& made : absent) sync_folder(made.parent_path());
}

namespace {

std::string owner_of(int descriptor) {
  std::string words(256, '\0');
  const auto count = ::pread(descriptor, words.data(), words.size(), 0);
  words.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return words.substr(0, words.find('\n'));
}

std::string own_words() { return text("process ", ::getpid(), " on ", host_name(), "\n"); }

}  // namespace

FolderLock::FolderLock(const fs::path& folder) : file_(folder / "in_use") {
  descriptor_ = open_or_refuse(file_, O_RDWR | O_CREAT | O_NOFOLLOW, "cannot be written");
  if (uninterrupted([&] { return ::flock(descriptor_, LOCK_EX | LOCK_NB); }) != 0) {
    const int reason = errno;
    const auto owner = owner_of(descriptor_);
    ::close(descriptor_);
    if (reason != EWOULDBLOCK) refuse(file_, "cannot be locked", reason);
    throw ConfigError(text(folder.string(), ": is in use by ", owner.empty() ? "another process" : owner,
                           "; wait for it, stop it, or give another folder"));
  }
  const auto words = own_words();
  if (::ftruncate(descriptor_, 0) != 0 || ::pwrite(descriptor_, words.data(), words.size(), 0) < 0) {
    const int reason = errno;
    ::close(descriptor_);
    refuse(file_, "cannot be written", reason);
  }
}

FolderLock::FolderLock(FolderLock&& other) noexcept
    : file_(std::move(other.file_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

FolderLock::~FolderLock() {
  if (descriptor_ < 0) return;
  if (::ftruncate(descriptor_, 0) != 0) {  // only the text; closing the descriptor releases the lock
  }
  ::close(descriptor_);
}

std::optional<::pid_t> flock_owner(::ino_t inode) {
  std::ifstream locks("/proc/locks");
  // "1: FLOCK  ADVISORY  WRITE 1234 00:2f:5678 0 EOF": only the inode, since some file systems give stat() another
  // device.
  for (std::string line, number, kind, mode, access, process, place; std::getline(locks, line);) {
    std::istringstream words(line);
    words >> number >> kind >> mode >> access >> process >> place;
    if (kind == "FLOCK" && place.substr(place.rfind(':') + 1) == std::to_string(inode))
      return static_cast<::pid_t>(std::strtol(process.c_str(), nullptr, 10));
  }
  return {};
}

namespace {

/// Whether /proc/locks has a lock of flock() on the file. Without that list: whether the process exists.
bool is_locked(const struct ::stat& file, ::pid_t owner) {
  if (::access("/proc/locks", R_OK) != 0) return ::kill(owner, 0) == 0 || errno == EPERM;
  return flock_owner(file.st_ino).has_value();
}

}  // namespace

FolderUse folder_use(const fs::path& folder) {
  const int descriptor = ::open((folder / "in_use").c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) return {};
  struct ::stat file = {};
  const bool is_file = ::fstat(descriptor, &file) == 0 && S_ISREG(file.st_mode);
  const auto owner = is_file ? owner_of(descriptor) : "";
  ::close(descriptor);
  std::istringstream words(owner);
  std::string process, on, host;
  ::pid_t number = 0;
  if (!(words >> process >> number >> on) || process != "process" || on != "on" || number <= 0) return {};
  std::getline(words >> std::ws, host);
  if (host != host_name()) return {FolderUse::State::unknown, owner};
  return {is_locked(file, number) ? FolderUse::State::held : FolderUse::State::left, owner};
}

bool is_part_of_file_name(std::string_view part) {
  constexpr std::size_t longest = 128;
  return part.size() <= longest && std::none_of(part.begin(), part.end(), [](char c) {
           return c == '/' || std::iscntrl(static_cast<unsigned char>(c)) != 0;
         });
}

}  // namespace tessera
