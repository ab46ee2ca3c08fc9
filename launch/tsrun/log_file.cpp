#include "launch/tsrun/log_file.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <sstream>
#include <thread>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera::tsrun {
namespace {

constexpr std::uint64_t most_copied_at_once = 1 << 20;
constexpr std::size_t longest_line = 1 << 20;   // in bytes; a longer one is shown in parts
constexpr int pipe_bytes = 1 << 20;             // size of the pipe: output that the program can print before take()
constexpr std::size_t most_waiting = 16 << 20;  // bytes that wait for the thread that writes the file
constexpr std::size_t tail_bytes = 1 << 16;     // bytes of output kept in memory
constexpr std::size_t longest_told_line = 4096;
constexpr double last_flush_seconds = 2;
constexpr std::string_view header_mark = "==== ";  // start of the line that separates two starts

std::uint64_t size_of(const std::filesystem::path& path) {
  std::error_code absent;
  const auto size = std::filesystem::file_size(path, absent);
  return absent ? 0 : size;
}

std::string read_part(const std::filesystem::path& path, std::uint64_t from, std::uint64_t count) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(count, '\0');
  file.seekg(static_cast<std::streamoff>(from));
  file.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return bytes;
}

}  // namespace

/// The file, and the bytes that wait for the thread that writes it.
struct WorkerLog::File {
  std::filesystem::path path;
  Descriptor file;
  std::mutex mutex;
  std::condition_variable changed;
  std::string waiting;        // to be written
  std::uint64_t dropped = 0;  // bytes dropped since the last successful write
  std::string problem;        // the first problem
  bool writes = false, ends = false;

  void add(const char* bytes, std::size_t count) {
    const std::lock_guard lock(mutex);
    if (waiting.size() + count > most_waiting) {
      drop(count, "is written too slowly");
    } else {
      waiting.append(bytes, count);
    }
    changed.notify_all();
  }

  void drop(std::size_t count, const std::string& why) {
    dropped += count;
    if (problem.empty()) problem = text(path.string(), ": ", why);
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [this] { return ends || !waiting.empty(); });
      if (waiting.empty()) return;
      writes = true;
      const auto bytes = std::exchange(waiting, "");
      const auto gap = dropped == 0 ? "" : text("\n", header_mark, dropped, " bytes are missing here: ", problem, "\n");
      lock.unlock();
      const bool closed_gap = gap.empty() || write_all(gap) == gap.size();
      const auto written = closed_gap ? write_all(bytes) : 0;
      const int reason = errno;
      lock.lock();
      if (closed_gap) dropped = 0;
      if (written < bytes.size()) drop(bytes.size() - written, text("cannot be written: ", std::strerror(reason)));
      writes = false;
      changed.notify_all();
    }
  }

  /// Returns the number of bytes written; if it is less than all, errno says why.
  std::size_t write_all(const std::string& bytes) const {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const auto count = write(file.number(), bytes.data() + done, bytes.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    return done;
  }
};

WorkerLog::WorkerLog(const std::filesystem::path& path, const std::string& header) : file_(std::make_shared<File>()) {
  if (path.has_parent_path()) make_folder(path.parent_path());
  file_->path = path;
  file_->file = Descriptor(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!file_->file) throw IoError(text(path.string(), ": cannot be written: ", std::strerror(errno)));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(text("pipe2: ", std::strerror(errno)));
  reading_ = Descriptor(ends[0]);
  writing_ = Descriptor(ends[1]);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  fcntl(ends[0], F_SETPIPE_SZ, pipe_bytes);
  signal(SIGXFSZ, SIG_IGN);  // a worker's file size limit is an error here, like a full disk
  if (const auto line = text(header_mark, header, "\n"); size_of(path) > 0) file_->add(line.data(), line.size());
  std::thread([file = file_] { file->run(); }).detach();
}

WorkerLog::~WorkerLog() {
  flush(last_flush_seconds);
  const std::lock_guard lock(file_->mutex);
  file_->ends = true;
  file_->changed.notify_all();
}

void WorkerLog::take() {
  char bytes[65536];
  while (reading_) {
    const auto count = read(reading_.number(), bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) return reading_.close();
    file_->add(bytes, static_cast<std::size_t>(count));
    tail_.append(bytes, static_cast<std::size_t>(count));
    if (tail_.size() > 2 * tail_bytes) tail_.erase(0, tail_.size() - tail_bytes);
  }
}

void WorkerLog::flush(double seconds) {
  std::unique_lock lock(file_->mutex);
  file_->changed.wait_for(lock, std::chrono::duration<double>(seconds),
                          [this] { return file_->waiting.empty() && !file_->writes; });
}

std::vector<std::string> WorkerLog::last_lines(std::size_t count) const {
  std::istringstream words(tail_);
  std::vector<std::string> lines;
  for (std::string line; std::getline(words, line);) lines.push_back(line.substr(0, longest_told_line));
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

std::string WorkerLog::problem() const {
  const std::lock_guard lock(file_->mutex);
  return file_->problem;
}

void LogFollower::add(const std::filesystem::path& path, const std::string& label) {
  files_.push_back({path, label, size_of(path), ""});
}

bool LogFollower::shows(const std::filesystem::path& path) const {
  return std::any_of(files_.begin(), files_.end(),
                     [&](const Followed& one) { return one.path == path && size_of(path) <= one.read; });
}

void LogFollower::show(bool all) {
  for (std::size_t i = 0; i < files_.size(); ++i) show(files_[i], all, screen_.room() / (files_.size() - i));
  tell_left_out();
}

void LogFollower::finish(double patience) {
  const auto all_read = [this] {
    return std::accumulate(files_.begin(), files_.end(), std::uint64_t{0},
                           [](std::uint64_t sum, const Followed& one) { return sum + one.read; });
  };
  show(true);
  for (std::uint64_t before = -1; is_behind() && before != all_read() && screen_.wait_for_room(patience); show(true))
    before = all_read();
  auto unread = screen_.finish(patience) ? std::map<std::string, std::uint64_t>() : screen_.take_back();
  for (auto& one : files_) {
    const auto size = std::max(size_of(one.path), one.read);
    one.left_out +=
        unread[one.path.string()] + size - std::exchange(one.read, size) + std::exchange(one.rest, "").size();
    one.inside_line = false;
  }
  tell_left_out();
}

bool LogFollower::is_behind() const {
  return std::any_of(files_.begin(), files_.end(),
                     [](const Followed& one) { return !one.rest.empty() || size_of(one.path) > one.read; });
}

/// Shows the beginning of a line whose end has not been written as a line.
void LogFollower::end_line(Followed& one, std::string& lines, std::uint64_t& shown) {
  const auto line = std::exchange(one.rest, "");
  if (std::exchange(one.inside_line, false))
    one.left_out += line.size();
  else
    lines += one.label + line + "\n", shown += line.size();
}

void LogFollower::show(Followed& one, bool all, std::size_t share) {
  if (share == 0) return;
  skip_old(one);
  std::string lines;
  std::uint64_t shown = 0;
  // One part per call unless `all`: a program that prints faster than lines can be copied must not keep the caller from
  // its other work.
  for (bool more = true; more && lines.size() < share; more = all) {
    const auto size = size_of(one.path);
    if (size <= one.read) break;
    const auto bytes = read_part(one.path, one.read,
                                 std::min<std::uint64_t>({size - one.read, most_copied_at_once, share - lines.size()}));
    if (bytes.empty()) break;
    one.read += bytes.size();
    const auto searched = one.rest.size();
    one.rest += bytes;
    std::size_t begin = 0;
    for (auto end = one.rest.find('\n', searched); end != std::string::npos; end = one.rest.find('\n', begin)) {
      if (std::exchange(one.inside_line, false))
        one.left_out += end + 1 - begin;
      else if (one.rest.compare(begin, header_mark.size(), header_mark) != 0)
        lines += one.label + one.rest.substr(begin, end + 1 - begin), shown += end + 1 - begin;
      begin = end + 1;
    }
    one.rest.erase(0, begin);
    // A program that writes no line ends, as one that draws its progress again and again.
    if (one.rest.size() >= longest_line) end_line(one, lines, shown);
  }
  if (all && !one.rest.empty() && size_of(one.path) <= one.read) end_line(one, lines, shown);
  screen_.echo(std::move(lines), one.path.string(), shown);
}

/// If more than most_behind_ bytes of a file wait, skips all but the last half of that.
void LogFollower::skip_old(Followed& one) const {
  const auto size = size_of(one.path);
  if (size <= one.read || size - one.read <= most_behind_) return;
  const auto next = size - most_behind_ / 2;
  one.left_out += next - one.read + std::exchange(one.rest, "").size();
  one.read = next;
  one.inside_line = true;
}

void LogFollower::tell_left_out() {
  std::string all;
  for (auto& one : files_)
    if (one.left_out > 0 && !one.inside_line)
      all += text(all.empty() ? "" : ", ", std::exchange(one.left_out, 0), " bytes of ", one.path.string());
  if (!all.empty())
    tell_(text("not shown here, because this output was not read: ", all, "; the files have all of it"));
}

}  // namespace tessera::tsrun
