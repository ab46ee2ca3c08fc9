#include <algorithm>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/interop/shell/program_options.h"
#include "framework/interop/shell/script_evaluator.h"

// Files that a script reads, writes and removes. The disk is read only; what the script does to it is kept in memory.

namespace tessera::shell {

namespace fs = std::filesystem;

std::string ScriptEvaluator::file_key(const std::string& path) const {
  const auto name = without_places(path), here = unknown("${PWD}");
  if (name.empty()) return "";
  const bool whole = name[0] == '/' || name[0] == unknown_begin;
  auto key = tidy_path(whole ? name : state_.folder + "/" + name);
  if (key == here) return ".";
  if (key.compare(0, here.size() + 1, here + "/") == 0) key.erase(0, here.size() + 1);
  return plain(key);
}

bool ScriptEvaluator::is_removed(const std::string& key) const {
  if (files_.count(key) != 0) return false;
  for (auto end = key.size(); end != std::string::npos && end > 0; end = key.rfind('/', end - 1))
    if (removed_.count(key.substr(0, end)) != 0) return true;
  return false;
}

bool ScriptEvaluator::is_file(const std::string& path, char kind) {
  std::error_code ignored;
  if (kind == 'd') return fs::is_directory(path, ignored);
  const auto key = file_key(path);
  return files_.count(key) != 0 || (!is_removed(key) && !found_file(path).empty());
}

std::string ScriptEvaluator::found_file(const std::string& path) const {
  auto name = without_places(path);
  const auto here = unknown("${PWD}") + "/";
  if (name.compare(0, here.size(), here) == 0) name.erase(0, here.size());
  if (name.empty() || has_unknown(name)) return "";
  std::error_code ignored;
  auto folder = name[0] == '/' ? "" : state_.folder + "/";
  if (folder.compare(0, here.size(), here) == 0) folder.erase(0, here.size());
  if (has_unknown(folder)) folder.clear();
  const auto beside = script_folder_.empty() || name[0] == '/' ? "" : script_folder_ + "/";
  for (const auto& candidate : {folder + name, beside + folder + name, name, beside + name})
    if (fs::is_regular_file(candidate, ignored)) return candidate;
  return "";
}

std::optional<std::string> ScriptEvaluator::text_of_file(const std::string& path) {
  const auto key = file_key(path);
  if (const auto written = files_.find(key); written != files_.end()) return written->second;
  const auto file = is_removed(key) ? "" : found_file(path);
  if (file.empty()) return std::nullopt;
  step(20);
  try {
    return read_script_text(file);
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> ScriptEvaluator::joined_files(const std::vector<std::string>& words) {
  const auto options = program_options(words, {});
  if (!options) return std::nullopt;
  std::string out;
  for (const auto& path : options->operands) {
    const auto text = path == "-" ? input_ : text_of_file(path);
    if (!text) return std::nullopt;
    out += *text;
  }
  return out;
}

void ScriptEvaluator::write_file(const std::string& name, const Output& output, bool append) {
  if (name.compare(0, 5, "/dev/") == 0) return;
  const auto key = file_key(name);
  const auto written = files_.find(key);
  const bool known = output.known && !(append && written != files_.end() && !written->second);
  if (!known) {
    files_[key] = std::nullopt;
    reading_.written.erase(key);
    return;
  }
  const auto before = append ? text_of_file(name).value_or("") : "";
  reading_.written[key] = before + output.words;
  files_[key] = reading_.written[key];
}

void ScriptEvaluator::remove_files(const std::vector<std::string>& words) {
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i].empty() || words[i][0] == '-') continue;
    const auto key = file_key(words[i]);
    std::erase_if(files_, [&key](const auto& file) {
      return file.first == key || file.first.compare(0, key.size() + 1, key + "/") == 0;
    });
    removed_.insert(key);
  }
}

void ScriptEvaluator::write_tee(const std::vector<std::string>& words) {
  const auto options = program_options(words, {"aip", "", {{"append", 'a'}, {"ignore-interrupts", 'i'}}});
  const bool known = options && input_;
  for (std::size_t i = 1; i < words.size() && !options; ++i) write_file(words[i], {"", false}, false);
  if (!options) return;
  for (const auto& file : options->operands) write_file(file, {input_.value_or(""), known}, options->has('a'));
}

}  // namespace tessera::shell
