#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>

#include "framework/interop/shell/script_evaluator.h"

// Words that are patterns of file names become the files that match them.

namespace tessera::shell {
namespace {

namespace fs = std::filesystem;

/// `pattern` without the backslashes of what was quoted.
std::string without_escapes(const std::string& pattern) {
  std::string out;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    out += pattern[i];
  }
  return out;
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> out;
  for (std::size_t i = 0; i <= path.size();) {
    const auto end = std::min(path.find('/', i), path.size());
    out.push_back(path.substr(i, end - i));
    i = end + 1;
  }
  return out;
}

/// Finds the files below a folder that match a pattern, one component of their paths after the other.
class FileFinder {
 public:
  FileFinder(std::string base, const std::string& pattern, bool ignore_case, bool dots, const Spend& spend)
      : base_(std::move(base)), pattern_(pattern), ignore_case_(ignore_case), dots_(dots), spend_(spend) {}

  std::vector<std::string> files() {
    std::vector<std::string> found = {""};
    for (std::size_t i = 0; i <= pattern_.size() && !found.empty();) {
      const auto end = std::min(pattern_.find('/', i), pattern_.size());
      std::vector<std::string> next;
      for (const auto& folder : found) add_next(next, folder, pattern_.substr(i, end - i), end == pattern_.size());
      spend_(1 + static_cast<long>(next.size() / 8));
      found = std::move(next);
      i = end + 1;
    }
    return found;
  }

 private:
  /// The paths `folder` + `part`; those that more components follow end with a slash.
  void add_next(std::vector<std::string>& out, const std::string& folder, const std::string& part, bool last) const {
    std::error_code ignored;
    if (is_file_pattern(part, true)) return add_matching(out, folder, part, last);
    const auto path = folder + without_escapes(part);
    if (!last)
      out.push_back(path + "/");
    else if (fs::symlink_status(base_ + path, ignored).type() != fs::file_type::not_found)
      out.push_back(path);
  }

  void add_matching(std::vector<std::string>& out, const std::string& folder, const std::string& part,
                    bool last) const {
    std::error_code failed;
    const auto piece = read_pattern(part, ignore_case_);
    const auto path = base_ + folder;
    for (fs::directory_iterator entry(path.empty() ? "." : path, failed), end; !failed && entry != end;
         entry.increment(failed)) {
      const auto name = entry->path().filename().string();
      if (name[0] == '.' && part[0] != '.' && !dots_) continue;
      std::error_code ignored;
      if (!match_ends(piece, name, 0, spend_)[name.size()] || (!last && !entry->is_directory(ignored))) continue;
      out.push_back(folder + name + (last ? "" : "/"));
    }
  }

  const std::string base_, pattern_;
  const bool ignore_case_, dots_;
  const Spend& spend_;
};

/// Commands for whose arguments it does not matter which files there are: they print nothing that is read here.
bool only_handles_files(const std::string& command) {
  static const std::set<std::string> known = {"rm",   "cp",    "mv",  "ls",   "chmod", "chown", "tar",   "zip", "unzip",
                                              "cat",  "grep",  "sed", "awk",  "egrep", "find",  "touch", "du",  "tr",
                                              "expr", "unset", "let", "read", "pkill", "rsync", "scp",   "ln",  "pip"};
  return known.count(command) != 0;
}

}  // namespace

bool is_file_pattern(const std::string& pattern, bool extended) {
  if (pattern.find_first_of("*?[(") == std::string::npos) return false;
  bool opened = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '*' || c == '?' || (c == ']' && opened)) return true;
    opened = opened || c == '[';
    if (extended && i + 1 < pattern.size() && pattern[i + 1] == '(' && (c == '@' || c == '+' || c == '!')) return true;
    if (c == '\\') ++i;
  }
  return false;
}

std::optional<std::vector<std::string>> ScriptEvaluator::files_that_match(const std::string& pattern) {
  const auto here = unknown("${PWD}") + "/";
  const auto in_here = [&here](const std::string& path) { return path.compare(0, here.size(), here) == 0; };
  const bool from_here = in_here(pattern);
  const auto rest = from_here ? pattern.substr(here.size()) : pattern;
  auto folder = from_here || rest[0] == '/' ? "" : state_.folder + "/";
  if (in_here(folder)) folder.erase(0, here.size());
  if (has_unknown(rest) || has_unknown(folder)) return std::nullopt;
  if (option("globstar") && rest.find("**") != std::string::npos) return std::nullopt;
  std::vector<std::string> bases = {folder};
  if (rest[0] != '/' && !script_folder_.empty() && (folder.empty() || folder[0] != '/'))
    bases.push_back(script_folder_ + "/" + folder);
  std::vector<std::string> found;
  for (std::size_t i = 0; i < bases.size() && found.empty(); ++i) {
    found = FileFinder(bases[i], rest, option("nocaseglob"), option("dotglob"), spend()).files();
    if (from_here)
      for (auto& file : found) file.insert(0, here);
    std::erase_if(found, [this](const auto& file) { return is_removed(file_key(file)); });
  }
  add_written(found, pattern);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  if (found.empty()) return std::nullopt;
  return found;
}

void ScriptEvaluator::add_written(std::vector<std::string>& out, const std::string& pattern) const {
  const auto parts = parts_of(pattern);
  const auto first = static_cast<std::size_t>(
      std::find_if(parts.begin(), parts.end(), [](const auto& part) { return is_file_pattern(part, true); }) -
      parts.begin());
  std::string head;
  for (std::size_t i = 0; i < first; ++i) head += without_escapes(parts[i]) + "/";
  const auto folder = file_key(head.empty() ? "." : head);
  const auto prefix = folder == "." ? "" : folder == "/" ? "/" : folder + "/";
  for (const auto& [key, text] : files_) {
    if (key.compare(0, prefix.size(), prefix) != 0) continue;
    const auto rest = key.substr(prefix.size());
    const auto names = parts_of(rest);
    bool matches = names.size() == parts.size() - first;
    for (std::size_t i = 0; matches && i < names.size(); ++i) {
      const auto& part = parts[first + i];
      matches = !names[i].empty() && (names[i][0] != '.' || part[0] == '.' || option("dotglob")) &&
                fits(names[i], part, option("nocaseglob"), [](long) {});
    }
    if (matches) out.push_back(head + rest);
  }
}

void ScriptEvaluator::add_files(std::vector<std::string>& out, const std::string& words, const std::string& pattern) {
  if (const auto files = files_that_match(without_places(pattern))) {
    step(static_cast<long>(files->size()));
    out.insert(out.end(), files->begin(), files->end());
    return;
  }
  if (option("nullglob")) return out.push_back(unknown(words));  // nothing, or the files there are
  // [0]*3+[1]*58, M-M-M-* and Et*3|(tt|)*30L are no names of files.
  const auto is_of_name = [](unsigned char c) { return std::islower(c) != 0 || c == '/'; };
  const bool names = std::any_of(words.begin(), words.end(), is_of_name) && words.find('|') == std::string::npos;
  const auto command = out.empty() ? "" : without_places(out[0]);
  const bool unread = only_handles_files(command) || (command == "echo" && output_ == nullptr);
  if (names && !unread && !has_unknown(words))
    remark("no file here matches the pattern " + plain(words) + ": read as it is written");
  out.push_back(words);
}

}  // namespace tessera::shell
