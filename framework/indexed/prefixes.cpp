#include "framework/indexed/prefixes.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "framework/base/files.h"
#include "framework/options/report.h"

namespace tessera::indexed {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_named = 5;

bool is_there(const fs::path& file) {
  std::error_code ignored;
  return fs::is_regular_file(file, ignored);
}

// The stems of all .bin and .idx files of a folder; empty if it cannot be read.
std::set<std::string> stems_in(const fs::path& folder) {
  std::set<std::string> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".idx" || at->path().extension() == ".bin") out.insert(at->path().stem());
  return out;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i) out += text(i > 0 ? ", " : "", names[i]);
  return names.size() > most_named ? text(out, " and ", names.size() - most_named, " more") : out;
}

// The prefixes of `folder`, those that look like `name` first.
std::string similar_prefixes(const fs::path& folder, const std::string& name) {
  const auto stems = stems_in(folder.empty() ? fs::path(".") : folder);
  std::vector<std::string> names(stems.begin(), stems.end());
  const auto nearest = name.empty() ? "" : options::closest(name, names);
  const auto likeness = [&](const std::string& one) {
    const bool begins = !name.empty() && (one.starts_with(name) || name.starts_with(one));
    return one == nearest || begins ? 0 : 1;
  };
  std::stable_sort(names.begin(), names.end(),
                   [&](const auto& one, const auto& other) { return likeness(one) < likeness(other); });
  for (auto& one : names) one = (folder / one).string();
  return list_of(names);
}

}  // namespace

std::string what_is_at_prefix(const std::string& prefix) {
  const fs::path path(prefix);
  const bool bin = is_there(prefix + ".bin"), idx = is_there(prefix + ".idx");
  if (bin && idx) return "";
  if (bin || idx) {
    const bool unfinished = is_there(prefix + ".idx.unfinished") || is_there(prefix + ".bin.unfinished");
    return text("; there is ", prefix, bin ? ".bin" : ".idx", " without ", prefix, bin ? ".idx" : ".bin",
                unfinished ? ", and unfinished files of a run that writes them or was interrupted"
                           : ": copy the missing file too, or make both again");
  }
  if (const auto extension = path.extension(); extension == ".bin" || extension == ".idx") {
    const auto stem = prefix.substr(0, prefix.size() - 4);
    if (is_there(stem + ".bin") && is_there(stem + ".idx")) return text("; did you mean '", stem, "'?");
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const auto inside = similar_prefixes(path, "");
    return inside.empty() ? text("; '", prefix, "' is a folder without such files")
                          : text("; '", prefix, "' is a folder with the prefixes ", inside);
  }
  const auto folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, ignored)) return text("; there is no folder '", folder.string(), "'");
  const auto beside = similar_prefixes(path.parent_path(), path.filename().string());
  return beside.empty() ? text("; the folder '", folder.string(), "' has no .bin or .idx files")
                        : text("; there are the prefixes ", beside);
}

std::vector<std::string> prefixes_in(const std::string& folder, std::vector<std::string>& ignored) {
  std::error_code error;
  if (!fs::is_directory(folder, error)) throw ConfigError(text("there is no folder '", folder, "' to merge"));
  std::set<std::string> stems;
  for (const auto& entry : list_folder(folder)) {
    if (!is_there(entry)) continue;
    const auto extension = entry.extension();
    if (extension == ".bin" || extension == ".idx")
      stems.insert(entry.stem());
    else if (extension != ".crc")
      ignored.push_back(entry.filename());
  }
  std::vector<std::string> out;
  for (const auto& stem : stems) {
    out.push_back((fs::path(folder) / stem).string());
    for (const auto* missing : {".bin", ".idx"})
      if (!is_there(out.back() + missing))
        throw ConfigError(text(out.back(), ": cannot be merged", what_is_at_prefix(out.back())));
  }
  if (out.empty()) throw ConfigError(text("the folder '", folder, "' has no .bin and .idx files to merge"));
  return out;
}

}  // namespace tessera::indexed
