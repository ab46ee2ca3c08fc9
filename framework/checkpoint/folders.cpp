#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "framework/base/files.h"
#include "framework/checkpoint/checkpoint.h"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view left_over = "_tmp";

std::string joined(const std::string& prefix) {
  return prefix.empty() || prefix.back() == '_' || prefix.back() == '-' ? prefix : prefix + "_";
}

/// The iteration in `name` if it is exactly a checkpoint name.
std::optional<std::int64_t> iteration_in(const std::string& name, const std::string& prefix) {
  const auto start = joined(prefix) + "iter_";
  if (name.rfind(start, 0) != 0) return std::nullopt;
  std::int64_t iteration = 0;
  const auto* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + start.size(), end, iteration);
  // Compares with the name made from the number: "iter_5" and "iter_+0000005" are not names that Tessera writes.
  if (error != std::errc{} || stop != end || iteration < 0 || checkpoint_name(prefix, iteration) != name)
    return std::nullopt;
  return iteration;
}

}  // namespace

std::string checkpoint_name(const std::string& prefix, std::int64_t iteration) {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "iter_%07lld", static_cast<long long>(iteration));
  return joined(prefix) + number.data();
}

std::optional<std::int64_t> iteration_in_name(const fs::path& folder) {
  const auto name = folder.filename().string();
  const auto at = name.rfind("iter_");
  return at == std::string::npos ? std::nullopt : iteration_in(name, name.substr(0, at));
}

std::optional<std::string> tracked_name(const fs::path& root) {
  std::string words;
  try {
    const auto file = root / tracker_name("");
    if (fs::is_regular_file(file)) words = read_file(file);
  } catch (const IoError&) {
    return std::nullopt;
  }
  while (!words.empty() && std::isspace(static_cast<unsigned char>(words.back())) != 0) words.pop_back();
  if (words == "release") return words;
  const bool counts = !words.empty() && words.size() < 12 &&
                      std::all_of(words.begin(), words.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  return counts ? std::optional(checkpoint_name("", std::stoll(words))) : std::nullopt;
}

std::string tracker_name(const std::string& prefix) { return joined(prefix) + "latest_checkpointed_iteration.txt"; }

std::vector<CheckpointInfo> list_checkpoints(const fs::path& root, const std::string& prefix) {
  std::vector<CheckpointInfo> found;
  for (const auto& path : list_folder(root))
    if (const auto iteration = iteration_in(path.filename().string(), prefix); iteration && fs::is_directory(path))
      found.push_back({path, *iteration});
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
  return found;
}

fs::path set_aside(const fs::path& folder, const std::string& reason) {
  const auto trimmed = folder.has_filename() ? folder : folder.parent_path();
  fs::path aside = trimmed.string() + "_damaged";
  for (int number = 2; fs::exists(fs::symlink_status(aside)); ++number)
    aside = text(trimmed.string(), "_damaged_", number);
  rename_or_exchange(trimmed, aside);
  if (fs::is_symlink(aside)) return aside;  // the caller reports the reason
  try {
    write_file_atomic(aside / "why_damaged.txt", reason + "\n");
  } catch (const IoError&) {  // the caller has the reason too; a full disk must not keep the run from continuing
  }
  return aside;
}

std::vector<CheckpointInfo> list_unfinished(const fs::path& root, const std::string& prefix) {
  std::vector<CheckpointInfo> found;
  for (const auto& path : list_folder(root)) {
    const auto name = path.filename().string();
    const auto cut = name.size() < left_over.size() ? 0 : name.size() - left_over.size();
    if (name.substr(cut) != left_over) continue;
    if (const auto iteration = iteration_in(name.substr(0, cut), prefix)) found.push_back({path, *iteration});
  }
  return found;
}

void delete_unfinished(const fs::path& root, const std::string& prefix) {
  for (const auto& unfinished : list_unfinished(root, prefix)) delete_all(unfinished.folder);
}

void delete_checkpoint(const fs::path& folder) {
  // Renaming a write-protected folder is possible; it would then be left without a name that anything finds.
  if (!fs::is_symlink(folder) && ::access(folder.c_str(), W_OK) != 0 && errno != ENOENT)
    throw IoError(text(folder.string(), ": cannot be deleted: ", std::generic_category().message(errno)));
  const fs::path leaving = text(folder.string(), left_over);
  rename_or_exchange(folder, leaving);
  delete_all(leaving);
}

}  // namespace tessera::checkpoint
