#include "launch/tsrun/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>
#include <sstream>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera {
namespace {

constexpr std::uint64_t most_at_once = 1 << 20;
constexpr std::string_view header_mark = "==== ";  // begins the line between two starts

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

int open_log(const std::filesystem::path& path, const std::string& header) {
  make_folder(path.parent_path());
  const int log = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) throw IoError(text(path.string(), ": cannot be written: ", std::strerror(errno)));
  const auto line = text(header_mark, header, "\n");
  if (size_of(path) > 0) static_cast<void>(!write(log, line.data(), line.size()));
  return log;
}

std::vector<std::string> last_lines(const std::filesystem::path& path, std::uint64_t from, std::size_t count) {
  const auto size = size_of(path);
  from = std::max(from, size > (1 << 16) ? size - (1 << 16) : 0);
  if (size <= from) return {};
  std::istringstream words(read_part(path, from, size - from));
  std::vector<std::string> lines;
  for (std::string line; std::getline(words, line);) lines.push_back(line);
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  if (lines.size() > count) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(count));
  return lines;
}

void LogFollower::add(const std::filesystem::path& path, const std::string& label) {
  files_.push_back({path, label, size_of(path), ""});
}

bool LogFollower::shows(const std::filesystem::path& path) const {
  return std::any_of(files_.begin(), files_.end(), [&](const Followed& one) { return one.path == path; });
}

void LogFollower::show(bool all) {
  for (auto& one : files_) show(one, all);
  out_.flush();
}

void LogFollower::show(Followed& one, bool all) {
  for (auto size = size_of(one.path); size > one.read; size = size_of(one.path)) {
    const auto bytes = read_part(one.path, one.read, std::min(size - one.read, most_at_once));
    if (bytes.empty()) break;
    one.read += bytes.size();
    one.rest += bytes;
    std::size_t begin = 0;
    for (auto end = one.rest.find('\n'); end != std::string::npos; end = one.rest.find('\n', begin)) {
      if (one.rest.compare(begin, header_mark.size(), header_mark) != 0)
        out_ << one.label << one.rest.substr(begin, end + 1 - begin);
      begin = end + 1;
    }
    one.rest.erase(0, begin);
  }
  if (all && !one.rest.empty()) out_ << one.label << std::exchange(one.rest, "") << "\n";
}

}  // namespace tessera
