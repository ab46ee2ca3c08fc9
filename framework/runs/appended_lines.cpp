#include "framework/runs/appended_lines.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/system_call.h"

namespace tessera::runs {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 18;

}  // namespace

struct AppendedLines::Opened {
  explicit Opened(const std::filesystem::path& file) : path(file) {
    // Without O_NONBLOCK a pipe would wait for its writer.
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 && errno != ENOENT && errno != ENOTDIR) refuse();
    if (descriptor >= 0 && ::fstat(descriptor, &status) != 0) refuse();
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (descriptor >= 0) ::close(descriptor);
  }
  bool is_there() const { return descriptor >= 0 && S_ISREG(status.st_mode); }
  std::uint64_t size() const { return static_cast<std::uint64_t>(status.st_size); }
  double changed() const {
    return static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) * 1e-9;
  }
  /// Fewer than `bytes` at the end of the file.
  std::size_t read(std::uint64_t offset, char* into, std::size_t bytes) const {
    const auto count = uninterrupted([&] { return ::pread(descriptor, into, bytes, static_cast<::off_t>(offset)); });
    if (count < 0) refuse();
    return static_cast<std::size_t>(count);
  }
  /// Whether the byte before `offset` is a line break.
  bool ends_line(std::uint64_t offset) const {
    char last = 0;
    return read(offset - 1, &last, 1) == 1 && last == '\n';
  }
  [[noreturn]] void refuse() const { throw IoError(text(path.string(), ": cannot be read: ", std::strerror(errno))); }

  const std::filesystem::path& path;
  int descriptor = -1;
  struct ::stat status = {};
};

AppendedLines::AppendedLines(std::filesystem::path file, std::size_t longest)
    : file_(std::move(file)), longest_(longest) {}

void AppendedLines::forget() {
  size_ = end_ = last_begin_ = 0;
  last_.clear();
  too_long_ = 0;
}

void AppendedLines::take(std::string_view line, std::uint64_t begin, const Visitor& visitor) {
  last_begin_ = begin;
  end_ = begin + line.size() + 1;
  last_.assign(line.size() <= longest_ ? line : std::string_view());
  if (line.size() > longest_)
    ++too_long_;
  else
    visitor.line(line, 0);
}

bool AppendedLines::refresh(const Visitor& visitor) {
  const Opened opened(file_);
  const bool was_there = std::exchange(exists_, opened.is_there());
  if (!exists_) {
    changed_ = 0;
    if (was_there) visitor.begin_again();
    forget();
    return was_there;
  }
  const bool same_file = was_there && device_ == opened.status.st_dev && inode_ == opened.status.st_ino;
  const auto before = std::exchange(changed_, opened.changed());
  if (same_file && before == changed_ && size_ == opened.size()) return false;
  device_ = opened.status.st_dev;
  inode_ = opened.status.st_ino;
  auto last = was_there && (!same_file || opened.size() < end_) ? LastLine::replaced : LastLine::kept;
  if (last == LastLine::kept && !last_.empty()) last = look_at_last_line(opened, visitor);
  size_ = opened.size();
  if (last == LastLine::unfinished) return true;
  if (last == LastLine::replaced) {
    forget();
    visitor.begin_again();
  }
  read_from_end(opened, visitor);
  return true;
}

/// Visits it if it was continued.
AppendedLines::LastLine AppendedLines::look_at_last_line(const Opened& opened, const Visitor& visitor) {
  std::string now(last_.size() + 1, '\0');
  now.resize(opened.read(last_begin_, now.data(), now.size()));
  if (now == last_ + '\n') return LastLine::kept;
  const auto known = last_.size() - 1;  // without the brace
  if (now.size() <= known || now.compare(0, known, last_, 0, known) != 0 || now[known] != ',')
    return LastLine::replaced;
  now.resize(longest_ + 1);
  now.resize(opened.read(last_begin_, now.data(), now.size()));
  const auto end = now.find('\n');
  if (end == std::string::npos) return now.size() > longest_ ? LastLine::replaced : LastLine::unfinished;
  now.resize(end);
  visitor.line(now, known);
  end_ = last_begin_ + now.size() + 1;
  last_ = std::move(now);
  return LastLine::kept;
}

void AppendedLines::read_from_end(const Opened& opened, const Visitor& visitor) {
  std::string buffer;
  auto begin = end_;          // of the line that the buffer begins with
  std::uint64_t skipped = 0;  // bytes of that line that are not in the buffer because it is too long
  std::size_t searched = 0;
  for (;;) {
    const auto used = buffer.size();
    buffer.resize(used + block_bytes);
    buffer.resize(used + opened.read(begin + skipped + used, buffer.data() + used, block_bytes));
    size_ = begin + skipped + buffer.size();
    if (buffer.size() == used) return;
    // What follows the last line was read after that line was looked at. If the line was continued meanwhile, the bytes
    // here are the rest of it: the next refresh finds that.
    if (used == 0 && begin > 0 && skipped == 0 && !opened.ends_line(begin)) {
      size_ = 0;
      return;
    }
    std::size_t line = 0;
    for (;;) {
      const auto* found =
          static_cast<const char*>(std::memchr(buffer.data() + searched, '\n', buffer.size() - searched));
      if (found == nullptr) break;
      const auto end = static_cast<std::size_t>(found - buffer.data());
      if (skipped > 0) {
        ++too_long_;
        last_.clear();
        end_ = begin + skipped + end + 1;
      } else {
        take({buffer.data() + line, end - line}, begin, visitor);
      }
      begin = end_;
      skipped = 0;
      searched = line = end + 1;
    }
    buffer.erase(0, line);
    if (buffer.size() > longest_) {
      skipped += buffer.size();
      buffer.clear();
    }
    searched = buffer.size();
  }
}

}  // namespace tessera::runs
