#include <algorithm>
#include <nlohmann/json.hpp>

#include "framework/base/files.h"
#include "framework/checkpoint/hugging_face.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string words_of(const Json& json) { return json.is_string() ? json.get<std::string>() : json.dump(); }

/// Nothing is said by null, and by false or nothing under a name that nobody knows.
bool says_nothing(const Json& json) { return json.is_null() || json == false || json.empty() || json == ""; }

/// The table of a family on top of the one it is `like`.
Value table_of(const Mappings& mappings, const std::string& name) {
  auto table = mappings.table(name);
  const auto* like = table.find("like");
  if (like == nullptr) return table;
  auto whole = table_of(mappings, like->scalar);
  whole.lay(std::move(table));
  return whole;
}

std::string known_families(const Mappings& mappings) {
  const std::string folder = "models/", end = ".yaml";
  std::string known;
  for (const auto& name : mappings.names())
    if (name.rfind(folder, 0) == 0 && name != "models/common.yaml")
      known += (known.empty() ? "" : ", ") + name.substr(folder.size(), name.size() - folder.size() - end.size());
  return known;
}

/// Reads config.json by the rows of two tables, collecting what cannot be read.
class ConfigReader {
 public:
  ConfigReader(std::string file, const Value& family, const Value& common)
      : file_(std::move(file)), family_(family.find("config")), common_(common.find("config")) {
    model_config_.kind = Value::Kind::group;
    if (const auto* defaults = family.find("defaults")) model_config_.lay(*defaults);
  }

  Value read(const Json& json) {
    walk(json, "");
    if (family_ != nullptr)
      for (const auto& [key, row] : family_->fields)
        if (const auto* absent = row.find("absent"); absent != nullptr && !seen(key))
          check_only(key, row, {absent->scalar});
    if (!problems_.empty()) throw ConfigError(text(file_, ":", problems_));
    return model_config_;
  }

 private:
  void walk(const Json& json, const std::string& above) {
    for (const auto& [name, value] : json.items()) {
      const auto key = above.empty() ? name : above + "." + name;
      if (value.is_null()) continue;
      seen_.push_back(key);
      if (const auto* row = row_of(key))
        apply(key, *row, value);
      else if (value.is_object())
        walk(value, key);
      else if (!says_nothing(value))
        problem(key, words_of(value), "no row of the tables in mappings/models says what it means");
    }
  }

  const Value* row_of(const std::string& key) const {
    const auto* row = family_ != nullptr ? family_->find(key) : nullptr;
    return row != nullptr || common_ == nullptr ? row : common_->find(key);
  }

  void apply(const std::string& key, const Value& row, const Json& value) {
    if (row.find("ignored") != nullptr) return;
    if (row.find("only") != nullptr) {
      std::vector<std::string> items;
      if (value.is_array())
        for (const auto& item : value) items.push_back(words_of(item));
      else
        items.push_back(words_of(value));
      return check_only(key, row, items);
    }
    const auto* to = row.find("to");
    if (to == nullptr) throw ConfigError(text(row.origin, ": a row has 'to', 'only' or 'ignored'"));
    auto words = words_of(value);
    if (const auto* translation = row.find("words")) {
      const auto* ours = translation->find(words);
      if (ours == nullptr) return problem(key, words, text("have ", *translation));
      words = ours->scalar;
    }
    if (to->kind == Value::Kind::scalar) set(key, to->scalar, words);
    for (const auto& item : to->items) set(key, item.scalar, words);
    if (const auto* also = row.find("also"))
      for (const auto& [name, constant] : also->fields) set(key, name, constant.scalar);
  }

  void set(const std::string& key, const std::string& option, const std::string& words) {
    const auto [before, fresh] = set_by_.emplace(option, std::pair(key, words));
    if (!fresh && before->second.second != words)
      return problem(key, words,
                     text("but ", before->second.first, " is ", before->second.second, ", and both mean ", option));
    model_config_.set(option, Value::of(words, {file_, 0, "", 1}));
  }

  void check_only(const std::string& key, const Value& row, const std::vector<std::string>& given) {
    const auto& allowed = row.find("only")->items;
    for (const auto& words : given)
      if (std::none_of(allowed.begin(), allowed.end(), [&](const auto& one) { return one.scalar == words; })) {
        const auto* why = row.find("why");
        return problem(key, words, why != nullptr ? why->scalar : "not built");
      }
  }

  void problem(const std::string& key, const std::string& words, const std::string& why) {
    problems_ += text("\n  ", key, " is ", words, ": ", why);
  }
  bool seen(const std::string& key) const { return std::find(seen_.begin(), seen_.end(), key) != seen_.end(); }

  std::string file_;
  const Value *family_, *common_;
  Value model_config_;
  std::vector<std::string> seen_;
  std::map<std::string, std::pair<std::string, std::string>> set_by_;  ///< our option -> their key and what it says
  std::string problems_;
};

}  // namespace

HuggingFaceConfig read_hugging_face_config(const fs::path& file, const Mappings& mappings) {
  const auto json = Json::parse(read_file(file), nullptr, false);
  if (!json.is_object()) throw ConfigError(text(file.string(), ": is no JSON object"));
  const auto type = json.value("model_type", Json());
  if (!type.is_string()) throw ConfigError(text(file.string(), ": has no model_type"));
  const auto names = mappings.names();
  const auto name = "models/" + type.get<std::string>() + ".yaml";
  if (type == "common" || std::find(names.begin(), names.end(), name) == names.end())
    throw ConfigError(text(file.string(), ": model_type ", type.get<std::string>(), " is not built; have ",
                           known_families(mappings)));
  const auto family = table_of(mappings, name), common = mappings.table("models/common.yaml");
  const auto* weights = family.find("weights");
  if (weights == nullptr) throw ConfigError(text(family.origin, ": names no table of weights"));
  return {ConfigReader(file.string(), family, common).read(json), weights->scalar};
}

}  // namespace tessera
