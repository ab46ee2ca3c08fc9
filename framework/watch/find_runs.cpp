#include "framework/watch/find_runs.h"

#include <algorithm>
#include <fstream>
#include <utility>

namespace tessera::watch {
namespace {

namespace fs = std::filesystem;

constexpr int deepest = 4;
constexpr int most_names = 20000;
constexpr std::streamoff tail_bytes = 16384;

/// The last change of the files that make `folder` a run folder; the least time if it is none.
fs::file_time_type changed(const fs::path& folder) {
  auto newest = fs::file_time_type::min();
  for (const char* name : {"metrics.jsonl", "events.jsonl", "run.json"}) {
    std::error_code error;
    if (!fs::is_regular_file(folder / name, error)) continue;
    const auto time = fs::last_write_time(folder / name, error);
    if (!error) newest = std::max(newest, time);
  }
  return newest;
}

}  // namespace

std::vector<fs::path> find_runs(const fs::path& folder, std::size_t most) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  if (const auto time = changed(folder); time != fs::file_time_type::min()) return {folder};
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (int names = 0; !error && entry != fs::recursive_directory_iterator() && names < most_names; ++names) {
    std::error_code unknown;
    if (entry->is_directory(unknown) && !entry->is_symlink(unknown)) {
      if (const auto time = changed(entry->path()); time != fs::file_time_type::min()) {
        found.emplace_back(time, entry->path());
        entry.disable_recursion_pending();
      }
      if (entry.depth() + 1 >= deepest) entry.disable_recursion_pending();
    }
    entry.increment(error);
  }
  std::sort(found.begin(), found.end(), [](const auto& one, const auto& other) { return other < one; });
  std::vector<fs::path> folders;
  for (const auto& run : found)
    if (folders.size() < most) folders.push_back(run.second);
  return folders;
}

std::vector<std::string> last_lines(const fs::path& file, std::size_t most) {
  std::vector<std::string> lines;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return lines;
  std::ifstream in(file, std::ios::binary);
  in.seekg(0, std::ios::end);
  const auto size = static_cast<std::streamoff>(in.tellg());
  if (!in || size <= 0) return lines;
  in.seekg(std::max(std::streamoff{0}, size - tail_bytes));
  std::string line;
  if (size > tail_bytes) std::getline(in, line);  // it began before
  while (std::getline(in, line)) lines.push_back(line);
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(most));
  return lines;
}

}  // namespace tessera::watch
