#include "framework/instructions/instruction_templates.h"

#include <string_view>
#include <utility>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/files/input_file.h"
#include "framework/options/mappings.h"

namespace tessera::instructions {
namespace {

using Slots = PromptTemplate::Slots;
using SlotKind = PromptTemplate::Slot::Kind;

// Whether `words` have {{name}}.
bool names_a_placeholder(std::string_view words) {
  const auto starts_name = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  for (auto at = words.find("{{"); at != std::string_view::npos; at = words.find("{{", at + 1)) {
    auto end = at + 2;
    if (end >= words.size() || !starts_name(words[end])) continue;
    while (end < words.size() && (starts_name(words[end]) || (words[end] >= '0' && words[end] <= '9'))) ++end;
    if (words.substr(end, 2) == "}}") return true;
  }
  return false;
}

class Reader {
 public:
  Reader(const Json& entry, std::string where) : entry_(entry), where_(std::move(where)) {}

  PromptTemplate operator()(const std::string& name) const {
    PromptTemplate made;
    made.name = name;
    made.kind = kind();
    made.efficient_eos = flag("efficient_eos");
    made.replace_eos = flag("replace_eos");
    made.default_system = joined_words("default_system");
    made.stop_words = words("stop_words");
    if (made.replace_eos && made.stop_words.empty()) refuse("replace_eos needs stop_words");
    made.thought_words = {"<think>\n", "\n</think>\n\n"};
    if (const auto thoughts = words("thought_words"); !thoughts.empty()) {
      if (thoughts.size() != 2) refuse("thought_words must be two texts");
      made.thought_words = {thoughts[0], thoughts[1]};
    }
    const Slots content = {{SlotKind::text, "{{content}}"}};
    made.user = slots("user", content, true);
    auto answer = content;
    if (!made.efficient_eos) answer.push_back({SlotKind::eos, ""});
    made.assistant = slots("assistant", answer, true);
    made.system = slots("system", content, true);
    made.observation = slots("observation", made.user, true);
    made.function = slots("function", content, true);
    made.separator = slots("separator", {}, false);
    made.prefix = slots("prefix", {}, false);
    if (made.kind == PromptTemplate::Kind::llama2 && made.system[0].kind != SlotKind::text)
      refuse("format_system of a Llama2Template must begin with a text");
    return made;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(text(where_, ": ", what, "; correct the template, or choose another --prompt-type"));
  }
  const Json* find(const std::string& key) const {
    const auto at = entry_.find(key);
    return at == nullptr || at->is_null() ? nullptr : at;
  }
  bool flag(const std::string& key) const {
    const auto* value = find(key);
    if (value != nullptr && !value->is_boolean()) refuse(text(key, " must be true or false"));
    return value != nullptr && value->get<bool>();
  }
  std::vector<std::string> words(const std::string& key) const {
    const auto* value = find(key);
    if (value == nullptr) return {};
    std::vector<std::string> made;
    for (const auto& one : *value) {
      if (!value->is_array() || !one.is_string()) refuse(text(key, " must be a list of texts"));
      made.push_back(one.string());
    }
    return made;
  }
  std::string joined_words(const std::string& key) const {
    const auto* value = find(key);
    if (value != nullptr && value->is_string()) return value->get<std::string>();
    std::string all;
    for (const auto& one : words(key)) all += one;
    return all;
  }
  PromptTemplate::Kind kind() const {
    const auto* value = find("template_class");
    const auto name = value != nullptr && value->is_string() ? value->get<std::string>() : "";
    if (name == "Llama2Template") return PromptTemplate::Kind::llama2;
    if (name == "LFDefaultTemplate") return PromptTemplate::Kind::without_separator;
    if (name == "MultimodalTemplate") return PromptTemplate::Kind::multimodal;
    if (name == "ReasoningTemplate") return PromptTemplate::Kind::reasoning;
    if (name == "DeepSeek4Template") refuse(text("template_class '", name, "' is not supported"));
    return PromptTemplate::Kind::plain;
  }

  // A missing or empty list of slots is the default, as there.
  Slots slots(const std::string& key, Slots otherwise, bool needs_placeholder) const {
    const auto* value = find("format_" + key);
    if (value != nullptr) {
      if (!value->is_object()) refuse(text("format_", key, " must be an object"));
      if (value->empty()) return otherwise;
      value = value->contains("slots") ? &value->at("slots") : nullptr;
    } else {
      value = find(key);  // the built-in ones are shorter
      if (value == nullptr) return otherwise;
    }
    if (value == nullptr || !value->is_array() || value->empty()) refuse(text("format_", key, " has no list of slots"));
    Slots made;
    bool has_placeholder = false;
    for (const auto& one : *value) {
      made.push_back(slot(key, one));
      has_placeholder = has_placeholder || (one.is_string() && names_a_placeholder(made.back().text));
    }
    if (has_placeholder != needs_placeholder)
      refuse(
          text("format_", key, needs_placeholder ? " needs" : " may not have", " a placeholder such as {{content}}"));
    return made;
  }

  PromptTemplate::Slot slot(const std::string& key, const Json& value) const {
    if (value.is_string()) return {SlotKind::text, value.string()};
    if (value.is_object() && value.contains("token") && value["token"].is_string())
      return {SlotKind::token, value["token"].string()};
    if (value == Json::array({"bos_token"})) return {SlotKind::bos, ""};
    if (value == Json::array({"eos_token"})) return {SlotKind::eos, ""};
    refuse(text("a slot of format_", key,
                " is neither a text, nor {\"token\": ...}, nor [\"bos_token\"], nor [\"eos_token\"]"));
  }

  const Json& entry_;
  std::string where_;
};

const Json* named(const Json& all, const std::string& name) {
  const Json* found = nullptr;
  for (const auto& one : all)
    if (one.is_object() && one.contains("name") && one["name"] == name) found = &one;  // the last one counts
  return found;
}

const options::Value& built_in() {
  static const auto table = options::Mappings().table("templates/mindspeed_llm.yaml");
  return table;
}

// The node of mappings/ as templates.json has it. Its texts are none of the words true and false.
Json as_json(const options::Value& value) {
  if (value.kind == options::Value::Kind::list) {
    auto made = Json::array();
    for (const auto& one : value.items) made.push_back(as_json(one));
    return made;
  }
  if (value.kind == options::Value::Kind::group) {
    auto made = Json::object();
    for (const auto& field : value.fields) made[field.name] = as_json(field.value);
    return made;
  }
  if (value.scalar == "true" || value.scalar == "false") return value.scalar == "true";
  return value.scalar;
}

const Json& built_in_templates() {
  static const Json all = [] {
    auto read = as_json(*built_in().find("templates"));
    for (auto& one : read)
      if (one.contains("like")) {
        auto whole = *named(read, one["like"].string());
        whole.update(one);
        one = whole;
      }
    return read;
  }();
  return all;
}

std::string joined_names(const Json& all) {
  std::string names;
  for (const auto& one : all)
    if (one.is_object() && one.contains("name") && one["name"].is_string())
      names += text(names.empty() ? "" : ", ", one["name"].string());
  return names;
}

}  // namespace

PromptTemplate prompt_template(const std::string& name, const std::string& file) {
  if (file.empty()) {
    const auto* entry = named(built_in_templates(), name);
    if (entry == nullptr)
      throw ConfigError(text("--prompt-type: '", name, "' is not built in, only ", joined_names(built_in_templates()),
                             "; give --prompt-type-path with a file such as MindSpeed-LLM's "
                             "configs/finetune/templates.json that has it"));
    return Reader(*entry, "prompt type " + name)(name);
  }
  const auto all = parse_json(files::read_input(file, "prompt templates"));
  if (!all.is_array())
    throw ConfigError(text(file, ": is not a JSON list of prompt templates, as MindSpeed-LLM's templates.json is"));
  const auto* entry = named(all, name);
  if (entry == nullptr)
    throw ConfigError(text(file, ": has no prompt template '", name, "', only ", joined_names(all)));
  return Reader(*entry, text(file, ": prompt type ", name))(name);
}

MultimodalTemplate multimodal_template(const std::string& name) {
  static const auto all = as_json(*options::Mappings().table("templates/mindspeed_mm.yaml").find("templates"));
  const auto* entry = named(all, name);
  if (entry == nullptr) throw ConfigError(text("template '", name, "' is not known; expected ", joined_names(all)));
  return {Reader(*entry, "template " + name)(name), entry->at("image").string(), entry->at("video").string(),
          entry->at("start").string(), entry->at("end").string()};
}

std::optional<bool> efficient_eos_of(const std::string& name) {
  if (named(built_in_templates(), name) != nullptr) return prompt_template(name).efficient_eos;
  const auto* other = built_in().find("not_built_in")->find(name);
  return other == nullptr ? std::nullopt : std::optional(other->scalar == "true");
}

std::vector<std::string> prompt_template_names() {
  std::vector<std::string> names;
  for (const auto& one : built_in_templates()) names.push_back(one["name"].string());
  return names;
}

}  // namespace tessera::instructions
