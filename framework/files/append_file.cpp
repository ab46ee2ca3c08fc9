#include "framework/files/append_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "framework/base/files.h"
#include "framework/base/folder_use.h"
#include "framework/base/system_call.h"

namespace tessera::files {
namespace {

constexpr std::size_t buffer_bytes = std::size_t{256} << 10U;

[[noreturn]] void refuse(const std::filesystem::path& path, const char* attempt, int reason = errno) {
  throw IoError(text(path.string(), ": ", attempt, ": ", std::strerror(reason)));
}

[[noreturn]] void refuse_open(const std::filesystem::path& path, const struct stat& facts) {
  const auto owner = flock_owner(facts.st_ino).value_or(0);
  throw ConfigError(text(path.string(), ": ", owner > 0 ? text("process ", owner) : "another process",
                         " is writing this output; wait for it, stop it, or give another output"));
}

}  // namespace

void AppendFile::refuse_if_open(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(std::filesystem::symlink_status(path, ignored))) return;
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC);  // NFS locks need it
  if (descriptor < 0) return;                                       // who creates or continues the file says why
  struct stat facts {};
  const bool held = ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  const bool known = ::fstat(descriptor, &facts) == 0;
  ::close(descriptor);
  if (held && known) refuse_open(path, facts);
}

AppendFile AppendFile::create(const std::filesystem::path& path) {
  refuse_if_open(path);
  File::create(path).close();
  return continued(path, 0);
}

// A file system without locks gives none: there require_its_name() is what remains.
void AppendFile::lock() {
  struct stat facts {};
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK || ::fstat(descriptor_, &facts) != 0) return;
  refuse_open(path_, facts);
}

bool AppendFile::has_its_name() const {
  struct stat own {};
  struct stat named {};
  if (::fstat(descriptor_, &own) != 0 || ::lstat(path_.c_str(), &named) != 0) return false;
  return !S_ISREG(own.st_mode) || (own.st_dev == named.st_dev && own.st_ino == named.st_ino);
}

void AppendFile::require_its_name() const {
  if (has_its_name()) return;
  throw IoError(text(path_.string(),
                     ": another process has replaced or removed this unfinished file, so the data of "
                     "this one is lost; run one process at a time for an output, or give each its own"));
}

AppendFile AppendFile::continued(const std::filesystem::path& path, std::int64_t size) {
  AppendFile file;
  file.path_ = path;
  file.descriptor_ = uninterrupted([&] { return ::open(path.c_str(), O_RDWR | O_CLOEXEC); });
  if (file.descriptor_ < 0) refuse(path, "cannot be opened for writing");
  struct stat facts {};
  if (::fstat(file.descriptor_, &facts) != 0) refuse(path, "cannot be examined");
  if (S_ISREG(facts.st_mode)) {
    file.lock();
    if (facts.st_size < size)
      throw IoError(text(path.string(), ": has ", facts.st_size, " bytes; ", size, " were expected"));
    file.written_ = facts.st_size;
    file.cut(size);
  }
  return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      written_(other.written_),
      buffer_(std::move(other.buffer_)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(written_, other.written_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto done = uninterrupted([&] { return ::pwrite(descriptor_, bytes.data(), bytes.size(), written_); });
    if (done < 0) refuse(path_, "cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    written_ += done;
  }
}

void AppendFile::append(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > buffer_bytes) flush();
  if (bytes.size() >= buffer_bytes)
    write(bytes);
  else
    buffer_ += bytes;
}

void AppendFile::flush() {
  write(buffer_);
  buffer_.clear();
}

void AppendFile::sync() {
  flush();
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) refuse(path_, "cannot be brought to the disk");
}

void AppendFile::write_at(std::int64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const auto done = uninterrupted([&] { return ::pwrite(descriptor_, bytes.data(), bytes.size(), offset); });
    if (done < 0) refuse(path_, "cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(done));
    offset += done;
  }
}

void AppendFile::read_at(std::int64_t offset, std::span<std::byte> into) const {
  while (!into.empty()) {
    const auto done = uninterrupted([&] { return ::pread(descriptor_, into.data(), into.size(), offset); });
    if (done < 0) refuse(path_, "cannot be read");
    if (done == 0)
      throw IoError(text(path_.string(), ": ends at byte ", offset, "; ", into.size(), " more were expected"));
    into = into.subspan(static_cast<std::size_t>(done));
    offset += done;
  }
}

void AppendFile::cut(std::int64_t size) {
  buffer_.clear();
  must(size <= written_, "a file is cut where it was written");  // ftruncate would append zeros
  if (uninterrupted([&] { return ::ftruncate(descriptor_, size); }) != 0) refuse(path_, "cannot be cut");
  written_ = size;
}

}  // namespace tessera::files
