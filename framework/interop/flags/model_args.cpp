#include "framework/interop/flags/model_args.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <sstream>

#include "framework/base/error.h"
#include "framework/options/yaml.h"

namespace tessera::flags {
namespace {

/// The key that a line gives, as "--lr", or nothing; `indent` gets the blanks before it.
std::string key_of(const std::string& line, std::size_t& indent) {
  indent = line.find_first_not_of(' ');
  if (indent == std::string::npos || line[indent] == '#') return "";
  const auto end = line.find(':', indent);
  if (end == std::string::npos || (end + 1 < line.size() && line[end + 1] != ' ')) return "";
  const auto key = line.substr(indent, end - indent);
  return key.find_first_of(" \"'{[") == std::string::npos ? key : "";
}

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

std::vector<std::string> values_of(const options::Value& value) {
  std::vector<std::string> out;
  if (value.kind == options::Value::Kind::list) {
    for (const auto& item : value.items)
      for (const auto& word : words_in(item.scalar)) out.push_back(word);
    return out;
  }
  const auto& words = value.scalar;
  if (words.size() > 2 && words.front() == '[' && words.find(']') == words.size() - 1)
    return words_in(words.substr(1, words.size() - 2));
  const auto first = words.find_first_not_of(" \t\n"), last = words.find_last_not_of(" \t\n");
  if (first != std::string::npos) out.push_back(words.substr(first, last - first + 1));
  return out;
}

bool is_word(const options::Value& value, const char* lower, const char* upper) {
  return value.kind == options::Value::Kind::scalar && (value.scalar == lower || value.scalar == upper);
}

void add_flags(Launch& launch, const options::Value& arguments) {
  for (const auto& [name, value] : arguments.fields) {
    if (value.kind == options::Value::Kind::none || is_word(value, "false", "False")) continue;
    GivenFlag flag{name, {}, value.origin};
    if (!is_word(value, "true", "True")) flag.values = values_of(value);
    launch.flags.push_back(std::move(flag));
  }
}

/// The part of `words` from `at` that denotes an unknown value: "${NAME}", "$NAME", "$4", "$(words)".
std::string unknown_at(const std::string& words, std::size_t at) {
  if (at + 1 >= words.size()) return "";
  const char next = words[at + 1];
  if (next == '{' || next == '(') {
    const char open = next, close = next == '{' ? '}' : ')';
    int depth = 0;
    for (auto i = at + 1; i < words.size(); ++i) {
      if (words[i] == open) ++depth;
      if (words[i] == close && --depth == 0) return words.substr(at, i - at + 1);
    }
    return "";
  }
  auto end = at + 1;
  if (std::isdigit(static_cast<unsigned char>(next)) != 0 || next == '@' || next == '*') return words.substr(at, 2);
  while (end < words.size() && (std::isalnum(static_cast<unsigned char>(words[end])) != 0 || words[end] == '_')) ++end;
  return end == at + 1 ? "" : words.substr(at, end - at);
}

void list_unknowns_of(const GivenFlag& flag, std::vector<UnknownValue>& unknowns) {
  for (const auto& value : flag.values)
    for (auto at = value.find('$'); at != std::string::npos; at = value.find('$', at + 1)) {
      const auto name = unknown_at(value, at);
      if (name.empty() || name.compare(0, 3, "$((") == 0) continue;  // its parts follow
      auto known = std::find_if(unknowns.begin(), unknowns.end(), [&name](const auto& u) { return u.name == name; });
      if (known == unknowns.end()) known = unknowns.insert(unknowns.end(), {name, {}, flag.at});
      if (std::find(known->used_by.begin(), known->used_by.end(), flag.flag) == known->used_by.end())
        known->used_by.push_back(flag.flag);
      at += name.size() - 1;
    }
}

}  // namespace

std::string without_repeated_flags(const std::string& words, const std::string& file, options::Report& report) {
  std::vector<std::string> lines;
  std::istringstream in(words);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::map<std::string, std::size_t> seen;  // of the block that the line is in
  std::size_t block = 0, indent = 0;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto key = key_of(lines[i], indent);
    if (key.empty()) continue;
    if (indent != block) seen.clear();
    block = indent;
    if (key.compare(0, 2, "--") != 0) continue;
    if (const auto first = seen.find(key); first != seen.end()) {
      report.note({file, static_cast<int>(i) + 1, "", 0},
                  text(key, " is given twice, first in line ", first->second + 1, "; the last counts"));
      lines[first->second].clear();
    }
    seen[key] = i;
  }
  std::string out;
  for (const auto& line : lines) out += line + "\n";
  return out;
}

void list_unknowns(LaunchReading& reading) {
  for (const auto& launch : reading.launches) {
    for (const auto& flag : launch.flags) list_unknowns_of(flag, reading.unknowns);
    for (const auto& flag : launch.options) list_unknowns_of(flag, reading.unknowns);
    for (const auto& flag : launch.elsewhere) list_unknowns_of(flag.given, reading.unknowns);
  }
}

bool is_model_args(const options::Value& tree) {
  const auto* arguments = tree.find("MODEL_ARGS");
  return arguments != nullptr && arguments->kind == options::Value::Kind::group;
}

LaunchReading read_model_args(const std::string& words, const std::string& file, options::Report& report) {
  LaunchReading reading;
  options::Value tree;
  try {
    tree = options::parse_yaml(without_repeated_flags(words, file, report), file);
  } catch (const ConfigError& error) {
    report.problem({file, 0, "", 0}, "", error.what());
    return reading;
  }
  const auto* arguments = tree.find("MODEL_ARGS");
  if (!is_model_args(tree)) {
    report.problem({file, 0, "", 0}, "", "no map MODEL_ARGS with flags is in it", "give a launch script or a recipe");
    return reading;
  }
  Launch launch;
  const auto* launcher = tree.find("LAUNCHER");
  launch.launcher = launcher ? launcher->scalar : "torchrun";
  launch.at = arguments->origin;
  for (const char* name : {"ENV_VARS", "MODEL_ENV_VARS"})
    if (const auto* variables = tree.find(name))
      for (const auto& field : variables->fields) launch.environment.emplace_back(field.name, field.value.scalar);
  add_flags(launch, *arguments);
  reading.launches.push_back(std::move(launch));
  list_unknowns(reading);
  return reading;
}

}  // namespace tessera::flags
