#include "framework/interop/hugging_face/peft_config.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "framework/base/json.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;
using options::Value;

std::string peft_word(const Json& json) { return json.is_string() ? json.string() : json.dump(); }

bool peft_says_nothing(const Json& json) {
  return json.is_null() || json == false || json == "" || (json.is_structured() && json.empty());
}

/// The same value as a node of a recipe.
Value value_of(const Json& json, const std::string& speaker) {
  const options::Origin origin{speaker, 0, "", 1};
  auto value = Value::of(peft_word(json), origin);
  if (json.is_array()) {
    value.kind = Value::Kind::list;
    for (const auto& item : json) value.items.push_back(value_of(item, speaker));
  } else if (json.is_object()) {
    value.kind = Value::Kind::group;
    for (const auto& [name, item] : json.items()) value.fields.push_back({name, value_of(item, speaker)});
  } else if (json.is_null()) {
    value.kind = Value::Kind::none;
  }
  if (json.is_structured()) value.scalar.clear();
  return value;
}

/// The inverse, where numbers and truth values are known by their words.
Json peft_json_of(const Value& value) {
  if (value.kind == Value::Kind::none) return {};
  if (value.kind == Value::Kind::list) {
    auto list = Json::array();
    for (const auto& item : value.items) list.push_back(peft_json_of(item));
    return list;
  }
  if (value.kind == Value::Kind::group) {
    auto object = Json::object();
    for (const auto& [name, item] : value.fields) object.put(name, peft_json_of(item));
    return object;
  }
  auto json = parse_json(value.scalar);
  return json.is_number() || json.is_boolean() || json.is_structured() ? json : Json(value.scalar);
}

/// Reads one file by the rows, collecting what cannot be read.
class PeftConfigReader {
 public:
  PeftConfigReader(const Value& rows, std::string speaker) : rows_(rows), speaker_(std::move(speaker)) {
    out_.lora_config.kind = Value::Kind::group;
    out_.lora_config.origin = {speaker_, 0, "", 1};
  }

  PeftConfig read(const Json& json) {
    for (const auto& [key, value] : json.items()) take(key, value);
    for (const auto& [key, row] : rows_.fields)
      if (needs_saying(key) && (!json.contains(key) || json[key].is_null()))
        put(row.find("to")->scalar, row.find("default")->scalar);
    if (!problems_.empty()) throw ConfigError(text(speaker_, ": the adapter cannot be used:", problems_));
    return std::move(out_);
  }

 private:
  /// Our defaults are others.
  static bool needs_saying(const std::string& key) { return key == "r" || key == "lora_alpha"; }

  void take(const std::string& key, const Json& value) {
    const auto* row = rows_.find(key);
    if (row == nullptr) {
      keep(key, value, "", "it says nothing");
      if (!peft_says_nothing(value)) refuse(key, value, "no row of mappings/adapters/peft.yaml says what it means");
      return;
    }
    if (key == "base_model_name_or_path" && value.is_string()) out_.base = value.string();
    if (key == "task_type" && value.is_string()) out_.task_type = value.string();
    if (key == "ensure_weight_tying") out_.ties_tables = value == true;
    const auto* to = row->find("to");
    keep(key, value, to != nullptr ? to->scalar : "", reason(*row));
    if (row->find("label") != nullptr) return;
    if (const auto* only = row->find("only")) return check(key, *row, *only, value);
    if (const auto* ignored = row->find("ignored")) return tell(key, *row, *ignored, value);
    if (const auto* words = row->find("words")) return translate(key, *row, *words, value);
    if (!needs_saying(key) && peft_json_of(*row->find("default")) == value) return;
    if (value.is_null()) return;
    const bool one_of_list = row->find("list") != nullptr && !value.is_array();
    put(row->find("to")->scalar, one_of_list ? Json::array({value}) : value);
  }

  static std::string reason(const Value& row) {
    for (const char* kind : {"label", "ignored"})
      if (const auto* why = row.find(kind)) return why->scalar;
    return row.find("to") != nullptr ? "" : "other values are not supported; this one changes nothing";
  }
  void keep(const std::string& key, const Json& value, const std::string& option, const std::string& why) {
    out_.keys.push_back({key, value.dump(), option, why});
  }

  void check(const std::string& key, const Value& row, const Value& only, const Json& value) {
    if (peft_says_nothing(value)) return;
    const auto allowed = [&](const Json& one) {
      return std::any_of(only.items.begin(), only.items.end(),
                         [&](const auto& item) { return item.scalar == peft_word(one); });
    };
    if (value.is_array() ? std::all_of(value.begin(), value.end(), allowed) : allowed(value)) return;
    refuse(key, value, row.find("why")->scalar);
  }

  void tell(const std::string& key, const Value& row, const Value& why, const Json& value) {
    if (peft_says_nothing(value) || peft_json_of(*row.find("default")) == value) return;
    out_.notes.push_back(text(speaker_, ": ", key, " is ignored: ", why.scalar));
  }

  void translate(const std::string& key, const Value& row, const Value& words, const Json& value) {
    const auto* ours = words.find(peft_word(value));
    if (ours == nullptr) return refuse(key, value, row.find("why")->scalar);
    if (ours->scalar != row.find("default")->scalar) put(row.find("to")->scalar, ours->scalar);
  }

  void put(const std::string& option, const Json& value) {
    out_.lora_config.fields.push_back({option, value_of(value, speaker_)});
  }
  void refuse(const std::string& key, const Json& value, const std::string& why) {
    problems_ += text("\n  ", key, " is ", value.dump(), ": ", why);
  }

  const Value& rows_;
  std::string speaker_, problems_;
  PeftConfig out_;
};

/// An option as PEFT has it; null if the options do not say it.
Json theirs_of(const Value& row, const Value& lora_config) {
  const auto* to = row.find("to");
  const auto* value = to == nullptr ? nullptr : lora_config.find(to->scalar);
  const bool is_empty = value != nullptr && value->kind == Value::Kind::list && value->items.empty();
  return value == nullptr || is_empty ? Json() : peft_json_of(*value);
}

}  // namespace

PeftConfig parse_peft_config(const std::string& words, const std::string& speaker, const options::Mappings& mappings) {
  std::string why;
  const auto json = parse_json(words, &why);
  if (!json.is_object())
    throw ConfigError(text(speaker, ": is no JSON object", why.empty() ? "" : ": ", why,
                           "; expected the adapter_config.json that PEFT writes"));
  const auto table = mappings.table("adapters/peft.yaml");
  return PeftConfigReader(*table.find("config"), speaker).read(json);
}

PeftConfig read_peft_config(const fs::path& file, const options::Mappings& mappings) {
  return parse_peft_config(read_file(file), file.string(), mappings);
}

std::string write_peft_config(const Value& lora_config, const PeftLabels& labels, const options::Mappings& mappings) {
  const auto table = mappings.table("adapters/peft.yaml");
  auto json = Json::object();
  for (const auto& [key, row] : table.find("config")->fields) {
    auto value = theirs_of(row, lora_config);
    if (value.is_null()) value = peft_json_of(*row.find("default"));
    if (value != "absent") json.put(key, std::move(value));
  }
  json["peft_version"] = table.find("program")->scalar;
  json["base_model_name_or_path"] = labels.base;
  json["task_type"] = labels.task_type;
  json["fan_in_fan_out"] = labels.fan_in_fan_out;
  json["ensure_weight_tying"] = labels.ensure_weight_tying;
  return json.sorted().dump(2) + "\n";
}

}  // namespace tessera::hugging_face
