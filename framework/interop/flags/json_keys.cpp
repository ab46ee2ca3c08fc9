#include "framework/interop/flags/json_keys.h"

#include <algorithm>
#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/options/yaml.h"

namespace tessera::flags {
namespace {

namespace fs = std::filesystem;

void add_key(const std::string& key, const options::Value& value, const FlagTable& table, std::vector<GivenFlag>& out) {
  using Kind = options::Value::Kind;
  const auto* row = table.find(key);
  const bool null = value.kind == Kind::none || (value.kind == Kind::scalar && value.scalar == "None");
  if (null && row && !row->nullable) return;
  if (value.kind == Kind::group && !row) {
    for (const auto& field : value.fields) add_key(key + "." + field.name, field.value, table, out);
    return;
  }
  GivenFlag flag{key, {}, value.origin};
  for (const auto& item : value.items) flag.values.push_back(text(item));
  if (value.kind != Kind::list)
    flag.values.push_back(value.kind == Kind::group ? "{...}" : null ? "null" : text(value));
  out.push_back(std::move(flag));
}

bool is_there(const fs::path& file) {
  std::error_code failed;
  return fs::is_regular_file(file, failed);
}

/// Where a file that a script names is; empty if nowhere.
fs::path found(const fs::path& file, const std::string& script) {
  if (is_there(file) || script.empty()) return is_there(file) ? file : fs::path();
  std::error_code failed;
  const auto folder = fs::absolute(script, failed).parent_path();
  if (!file.is_absolute())
    for (auto around = folder;; around = around.parent_path()) {
      if (is_there(around / file)) return fs::proximate((around / file).lexically_normal(), failed);
      if (around == around.parent_path()) break;
    }
  const auto beside = folder / file.filename();
  return is_there(beside) ? fs::proximate(beside, failed) : fs::path();
}

void add_file(const GivenFlag& flag, const FlagRow& row, const FlagTable& table, const std::string& script,
              options::Report& report, std::vector<GivenFlag>& out) {
  const auto name = joined(flag.values, " ");
  if (name.empty()) return;  // the table says that its value is missing
  if (name.find('$') != std::string::npos)
    return report.problem(flag.at, flag.flag, text(flag.flag, " names the file ", name, ", which is not known"),
                          "give its variables with --env NAME=VALUE");
  const auto file = found(name, script);
  if (file.empty() && row.optional)
    return report.note(flag.at, text(flag.flag, ": there is no file ", name, "; read as if it said nothing"));
  if (file.empty())
    return report.problem(flag.at, flag.flag, text(flag.flag, ": there is no file ", name),
                          text("put it there, or beside ", script.empty() ? "the run" : script, " as ",
                               fs::path(name).filename().string()));
  if (file != fs::path(name)) report.note(flag.at, text(flag.flag, " is read from ", file.string()));
  for (auto& key : keys_of_file(file.string(), table, report)) out.push_back(std::move(key));
}

}  // namespace

std::vector<GivenFlag> keys_of_file(const std::string& file, const FlagTable& table, options::Report& report) {
  std::vector<GivenFlag> keys;
  try {
    const auto words = read_file(file);
    if (const auto json = read_json(words); !json.is_object())
      throw ConfigError(text("is a JSON ", json.type_name(), ", not an object"));
    const auto tree = options::parse_json_as_yaml(words, file, report);
    for (const auto& [key, value] : tree.fields) add_key(key, value, table, keys);
    if (keys.empty()) throw ConfigError("sets nothing");
  } catch (const Error& error) {
    report.problem({file, 0, "", 0}, "", error.what(), "give a JSON file with the settings of the run");
    report.incomplete();
  }
  std::stable_partition(keys.begin(), keys.end(), [&table](const auto& key) {
    const auto* row = table.find(key.flag);
    return row && row->decides;
  });
  return keys;
}

std::vector<GivenFlag> with_keys_of_files(const std::vector<GivenFlag>& flags, const FlagTable& table,
                                          const std::string& script, options::Report& report) {
  std::vector<GivenFlag> all;
  for (const auto& flag : flags) {
    all.push_back(flag);
    const auto* row = table.find(flag.flag);
    const bool last = std::none_of(&flag + 1, flags.data() + flags.size(),
                                   [&flag](const auto& later) { return later.flag == flag.flag; });
    if (row && row->kind == FlagRow::Kind::keys && last) add_file(flag, *row, table, script, report, all);
  }
  return all;
}

}  // namespace tessera::flags
