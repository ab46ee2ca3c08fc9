#include <algorithm>
#include <cstdlib>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/interop/tables/config_table.h"

namespace tessera::tables {
namespace {

/// A number, a truth value or a list as such, anything else as text.
Json json_of(const std::string& words) {
  auto json = parse_json(words);
  return json.is_number() || json.is_boolean() || json.is_array() ? json : Json(words);
}

/// 1 as 1.0 where the row asks for a `float`: a program may tell them apart.
Json number_of(Json json, const options::Value& row) {
  return row.find("float") != nullptr && json.is_number() ? Json(json.get<double>()) : json;
}

/// Set "rope_parameters.rope_theta".
void set(Json& json, const std::string& path, Json value) {
  const auto dot = path.find('.');
  if (dot == std::string::npos)
    json[path] = std::move(value);
  else
    set(json[path.substr(0, dot)], path.substr(dot + 1), std::move(value));
}

/// The value at "hidden_size" or "optimizer_config.betas[1]"; null if there is none.
const options::Value* find(const options::Value& ours, const std::string& path) {
  const auto bracket = path.find('[');
  const auto* value = ours.at(path.substr(0, bracket));
  if (bracket == std::string::npos || value == nullptr) return value;
  const auto item = static_cast<std::size_t>(std::strtoul(path.c_str() + bracket + 1, nullptr, 10));
  return item < value->items.size() ? &value->items[item] : nullptr;
}

bool said(const options::Value* value) { return value != nullptr && value->kind == options::Value::Kind::scalar; }

class ConfigWriter {
 public:
  ConfigWriter(const options::Value& ours, std::string program, Json begun)
      : ours_(ours), program_(std::move(program)), json_(std::move(begun)) {}

  void write(const std::string& key, const options::Value& row) {
    if (row.find("ignored") != nullptr) return;
    const auto* to = row.find("to");
    if (to != nullptr && row.find("by") != nullptr) return write_branch(key, row, *to);
    const auto* read_only = row.find("read_only");
    if (to != nullptr && (read_only == nullptr || read_only->scalar != "true")) return write_value(key, row, *to);
    if (const auto* only = row.find("only"); only != nullptr && row.find("absent") != nullptr)
      set(json_, key, only->items.empty() ? Json() : json_of(only->items.front().scalar));
  }
  const Json& json() const { return json_; }

 private:
  /// A key whose meaning hangs on the word under another, the first of `by`. An option that is said and `forced` makes
  /// that word its own.
  void write_branch(const std::string& key, const options::Value& row, const options::Value& to) {
    const auto& by = row.find("by")->items.front().scalar;
    const auto* forced = row.find("forced");
    if (forced != nullptr && said(find(ours_, to.find(forced->scalar)->scalar))) set(json_, by, Json(forced->scalar));
    const auto* word = at(json_, by);
    const auto* option =
        word == nullptr ? nullptr : to.find(word->is_string() ? word->get<std::string>() : word->dump());
    if (option == nullptr) return;
    const auto* value = find(ours_, option->scalar);
    if (said(value) && !is_unwritten(row, *value)) set(json_, key, json_of(value->scalar));
  }
  static bool is_unwritten(const options::Value& row, const options::Value& value) {
    const auto* none = row.find("unwritten");
    return none != nullptr && none->scalar == value.scalar;
  }
  static const Json* at(const Json& json, const std::string& path) {
    const auto dot = path.find('.');
    const auto* found = json.find(path.substr(0, dot));
    if (found == nullptr) return nullptr;
    return dot == std::string::npos ? &*found : at(*found, path.substr(dot + 1));
  }

  void write_value(const std::string& key, const options::Value& row, const options::Value& to) {
    const auto first = to.kind == options::Value::Kind::scalar ? to.scalar : to.items.front().scalar;
    const auto* value = find(ours_, first);
    if (value != nullptr && value->kind == options::Value::Kind::list && row.find("words") == nullptr)
      return write_list(key, *value);
    for (const auto& item : to.items) {
      const auto* other = find(ours_, item.scalar);
      if (said(value) != said(other) || (said(value) && value->scalar != other->scalar))
        return;  // no one word for both
    }
    if (!said(value)) {
      if (row.find("absent") != nullptr) set(json_, key, Json());
      return;
    }
    if (is_unwritten(row, *value)) return;
    const auto* words = row.find("words");
    if (words == nullptr) return set(json_, key, number_of(json_of(value->scalar), row));
    for (const auto& [theirs, ours] : words->fields)
      if (ours.scalar == value->scalar) return set(json_, key, json_of(theirs));
    if (const auto* otherwise = row.find("otherwise")) return set(json_, key, json_of(otherwise->scalar));
    throw ConfigError(text("a ", program_, " has no ", key, " for ", first, " ", *value, "; it has ", *words));
  }

  void write_list(const std::string& key, const options::Value& list) {
    auto items = Json::array();
    for (const auto& item : list.items) items.push_back(json_of(item.scalar));
    set(json_, key, std::move(items));
  }

  const options::Value& ours_;
  std::string program_;
  Json json_;
};

}  // namespace

ConfigRows::ConfigRows(const options::Value& table, const options::Value* common)
    : own_(table.find("config")),
      common_(common == nullptr ? nullptr : common->find("config")),
      without_effect_(common == nullptr ? nullptr : common->find("without_effect")) {}

const options::Value* ConfigRows::find(const std::string& key) const {
  const auto* row = own_ != nullptr ? own_->find(key) : nullptr;
  return row != nullptr || common_ == nullptr ? row : common_->find(key);
}

bool ConfigRows::without_effect(const std::string& key) const {
  const auto fits = [&](const options::Value& name) {
    const auto& words = name.scalar;
    return words == key || (words.ends_with('*') && key.starts_with(words.substr(0, words.size() - 1)));
  };
  if (without_effect_ == nullptr) return false;
  return std::any_of(without_effect_->fields.begin(), without_effect_->fields.end(), [&](const auto& kind) {
    return std::any_of(kind.value.items.begin(), kind.value.items.end(), fits);
  });
}

bool ConfigRows::is_carried(const std::string& key) const {
  const auto* row = find(key);
  return row == nullptr ? without_effect(key) : row->find("ignored") != nullptr || row->find("carried") != nullptr;
}

std::vector<options::Value::Field> ConfigRows::all() const {
  std::vector<options::Value::Field> rows;
  if (own_ != nullptr) rows = own_->fields;
  if (common_ != nullptr)
    for (const auto& field : common_->fields)
      if (own_ == nullptr || own_->find(field.name) == nullptr) rows.push_back(field);
  return rows;
}

std::string write_by_table(const options::Value& ours, const options::Value& table, const std::string& program,
                           const options::Value* common, const std::string& begun) {
  ConfigWriter writer(ours, program, read_json(begun));
  for (const auto& [key, row] : ConfigRows(table, common).all()) writer.write(key, row);
  return writer.json().dump();
}

}  // namespace tessera::tables
