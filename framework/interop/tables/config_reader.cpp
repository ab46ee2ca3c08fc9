#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/interop/tables/config_table.h"

namespace tessera::tables {
namespace {

using Json = nlohmann::json;

std::string words_of(const Json& json) { return json.is_string() ? json.get<std::string>() : json.dump(); }

/// Nothing is said by null, and by false or nothing under a name that nobody knows.
bool says_nothing(const Json& json) { return json.is_null() || json == false || json.empty() || json == ""; }

constexpr int most_levels = 16;

/// Null when the text is not a JSON object or goes deeper than any real config.json.
Json parsed(const std::string& words) {
  bool deep = false;
  auto json = Json::parse(
      words,
      [&](int depth, Json::parse_event_t, Json&) {
        deep = deep || depth > most_levels;
        return !deep;
      },
      false);
  return deep || !json.is_object() ? Json() : json;
}

bool same_number(const std::string& a, const std::string& b) {
  const auto x = Json::parse(a, nullptr, false), y = Json::parse(b, nullptr, false);
  return x.is_number() && y.is_number() && x.get<double>() == y.get<double>();
}

/// Reads settings by the rows of one or two tables, collecting what cannot be read.
class ConfigReader {
 public:
  ConfigReader(std::string file, const options::Value& family, const options::Value* common)
      : file_(std::move(file)),
        family_(family.find("config")),
        common_(common == nullptr ? nullptr : common->find("config")),
        open_(common == nullptr) {
    model_config_.kind = options::Value::Kind::group;
    if (const auto* defaults = family.find("defaults")) model_config_.lay(*defaults);
  }

  options::Value read(const Json& json, const options::Value* needed) {
    root_ = &json;
    walk(json, "");
    for (const auto& [key, option, words] : weak_)
      if (set_by_.count(option) == 0) set(key, option, words);
    if (family_ != nullptr)
      for (const auto& [key, row] : family_->fields)
        if (const auto* absent = row.find("absent"); absent != nullptr && !seen(key)) take_absent(key, row, *absent);
    if (needed != nullptr)
      for (const auto& key : needed->items)
        if (!model_config_.at(key.scalar)) problems_ += text("\n  nothing in it says ", key.scalar);
    if (!problems_.empty()) throw ConfigError(text(file_, ":", problems_));
    return model_config_;
  }

 private:
  void walk(const Json& json, const std::string& above) {
    for (const auto& [name, value] : json.items()) {
      const auto key = above.empty() ? name : above + "." + name;
      seen_.push_back(key);
      if (value.is_null()) continue;
      if (const auto* row = row_of(key))
        apply(key, *row, value);
      else if (value.is_object())
        walk(value, key);
      else if (!open_ && !says_nothing(value))
        problem(key, words_of(value), "no row of the tables in mappings/models says what it means");
    }
  }

  /// What the family means where the key is left out.
  void take_absent(const std::string& key, const options::Value& row, const options::Value& absent) {
    if (row.find("only") != nullptr)
      check_only(key + " (left out)", row, {absent.scalar});
    else
      apply(key, row, absent.scalar);
  }

  const options::Value* row_of(const std::string& key) const {
    const auto* row = family_ != nullptr ? family_->find(key) : nullptr;
    return row != nullptr || common_ == nullptr ? row : common_->find(key);
  }

  void apply(const std::string& key, const options::Value& row, const Json& value) {
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
    if (const auto* by = row.find("by"); by != nullptr && to != nullptr) {
      to = branch(*by, *to);
      if (to == nullptr) return;  // a word that has no use for this key
    }
    if (to == nullptr) throw ConfigError(text(row.origin, ": a row has 'to', 'only' or 'ignored'"));
    auto words = words_of(value);
    if (const auto* translation = row.find("words")) {
      const auto* ours = translation->find(words);
      if (ours == nullptr) return problem(key, words, text("have ", *translation));
      words = ours->scalar;
      if (words.empty()) return;  // a word that says nothing about the option
    }
    if (row.find("weak") != nullptr) {
      weak_.push_back({key, to->scalar, words});
      return;
    }
    if (to->kind == options::Value::Kind::scalar) set(key, to->scalar, words);
    for (const auto& item : to->items) set(key, item.scalar, words);
    if (const auto* also = row.find("also"))
      for (const auto& [name, constant] : also->fields) set(key, name, constant.scalar);
  }

  /// What `to` says for the word under one of the keys of `by`; null when it says nothing.
  const options::Value* branch(const options::Value& by, const options::Value& to) const {
    for (const auto& key : by.items)
      if (const auto* word = at(*root_, key.scalar)) return to.find(words_of(*word));
    return nullptr;
  }
  static const Json* at(const Json& json, const std::string& path) {
    const auto dot = path.find('.');
    const auto found = json.find(path.substr(0, dot));
    if (found == json.end() || found->is_null()) return nullptr;
    if (dot == std::string::npos) return &*found;
    return found->is_object() ? at(*found, path.substr(dot + 1)) : nullptr;
  }

  void set(const std::string& key, const std::string& option, const std::string& words) {
    const auto [before, fresh] = set_by_.emplace(option, std::pair(key, words));
    if (!fresh && before->second.second != words && !same_number(before->second.second, words))
      return problem(key, words,
                     text("but ", before->second.first, " is ", before->second.second, ", and both mean ", option));
    model_config_.set(option, options::Value::of(words, {file_, 0, "", 1}));
  }

  void check_only(const std::string& key, const options::Value& row, const std::vector<std::string>& given) {
    const auto& allowed = row.find("only")->items;
    for (const auto& words : given)
      if (std::none_of(allowed.begin(), allowed.end(), [&](const auto& one) { return one.scalar == words; })) {
        const auto* why = row.find("why");
        return problem(key, words, why != nullptr ? why->scalar : "not implemented");
      }
  }

  void problem(const std::string& key, const std::string& words, const std::string& why) {
    problems_ += text("\n  ", key, " is ", words, ": ", why);
  }
  bool seen(const std::string& key) const { return std::find(seen_.begin(), seen_.end(), key) != seen_.end(); }

  std::string file_;
  const Json* root_ = nullptr;
  const options::Value *family_, *common_;
  bool open_;  ///< keys without a row are left alone
  options::Value model_config_;
  std::vector<std::string> seen_;
  struct Weak {
    std::string key, option, words;
  };
  std::vector<Weak> weak_;  ///< rows that count where no other says the option
  std::map<std::string, std::pair<std::string, std::string>> set_by_;  ///< our option -> their key and what it says
  std::string problems_;
};

}  // namespace

options::Value read_by_table(const std::string& json, const std::string& speaker, const options::Value& table,
                             const options::Value* common) {
  const auto given = parsed(json);
  if (!given.is_object()) throw ConfigError(text(speaker, ": is not a JSON object"));
  return ConfigReader(speaker, table, common).read(given, table.find("needed"));
}

}  // namespace tessera::tables
