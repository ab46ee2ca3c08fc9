#include "framework/options/mappings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>

#include "framework/base/error.h"
#include "framework/options/embedded.h"
#include "framework/options/yaml.h"

namespace tessera::options {

namespace fs = std::filesystem;

Mappings::Mappings(std::string folder) : folder_(std::move(folder)) {
  if (!folder_.empty() && !fs::is_directory(folder_)) throw ConfigError("--mappings " + folder_ + ": is not a folder");
}

std::vector<std::string> Mappings::names() const {
  std::vector<std::string> all;
  if (folder_.empty()) {
    for (const auto& file : embedded_mappings()) all.emplace_back(file.name);
  } else {
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.path().extension() == ".yaml") all.push_back(entry.path().lexically_relative(folder_).generic_string());
  }
  std::sort(all.begin(), all.end());
  return all;
}

std::string Mappings::text(const std::string& name) const {
  const auto all = names();
  if (std::find(all.begin(), all.end(), name) == all.end()) {
    std::string have;
    for (const auto& one : all) have += (have.empty() ? "" : ", ") + one;
    throw ConfigError(
        tessera::text("no table '", name, "' in mappings", folder_.empty() ? "" : " of " + folder_, "; have ", have));
  }
  if (folder_.empty()) {
    for (const auto& file : embedded_mappings())
      if (name == file.name) return std::string(file.text);
  }
  std::ifstream in(fs::path(folder_) / name, std::ios::binary);
  std::ostringstream words;
  words << in.rdbuf();
  if (!in || words.fail()) throw ConfigError(tessera::text((fs::path(folder_) / name).string(), ": cannot be read"));
  return words.str();
}

// To parse a table of 250 lines takes 10 ms of a start, which uses some tables several times.
Value Mappings::table(const std::string& name) const {
  if (!folder_.empty()) return parse_yaml(text(name), folder_ + "/" + name);
  static std::map<std::string, Value> parsed;
  static std::mutex guard;
  const std::lock_guard lock(guard);
  const auto known = parsed.find(name);
  if (known != parsed.end()) return known->second;
  return parsed.emplace(name, parse_yaml(text(name), "mappings/" + name)).first->second;
}

int Mappings::likes(const std::string& name) const {
  const auto own = table(name);
  const auto* like = own.find("like");
  if (like == nullptr) return 0;
  int longest = like->kind == Value::Kind::scalar ? likes(like->scalar) : 0;
  for (const auto& item : like->items) longest = std::max(longest, likes(item.scalar));
  return 1 + longest;
}

void Mappings::ignore_keys(const std::vector<std::string>& keys) {
  ignored_keys_.insert(ignored_keys_.end(), keys.begin(), keys.end());
}

}  // namespace tessera::options
