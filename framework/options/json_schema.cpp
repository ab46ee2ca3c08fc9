#include "framework/options/json_schema.h"

#include <algorithm>
#include <set>

#include "framework/base/error.h"
#include "framework/base/json.h"
#include "framework/options/json_types.h"

namespace tessera::options {
namespace {

/// "fa_config.pre_tokens" as "fa_config/properties/pre_tokens".
std::string pointer(const std::string& name) {
  const auto dot = name.find('.');
  return dot == std::string::npos ? name : name.substr(0, dot) + "/properties/" + pointer(name.substr(dot + 1));
}

Json schema_of(const OptionFacts& option) {
  auto words = option.doc;
  if (!option.unit.empty()) words += " In " + option.unit + ".";
  for (const auto& why : option.no_effect_if) words += " No effect if " + why + ".";
  if (only_compatible(option))
    words += " Accepted for compatibility; has no effect.";
  else if (option.planned)
    words += " Not implemented yet: only values that do not change the run are accepted.";
  Json whole{{"description", words}, {"default", json_of(option.default_value)}};
  if (option.required) whole.erase("default");
  whole.update(json_type(option));
  return whole;
}

Json schema_of(const Alias& alias, const OptionFacts& option, const std::string& group) {
  const auto meant = alias.item < 0 ? option.name : text(option.name, "[", alias.item, "]");
  Json schema{{"description", "Another spelling of " + meant + "."}, {"deprecated", true}};
  const Json same{{"$ref", "#/properties/" + group + "/properties/" + pointer(option.name)}};
  if (alias.item >= 0) {
    schema.update(json_item(option));
  } else if (alias.words.empty()) {
    schema.update(same);
  } else {
    OptionFacts theirs;
    for (const auto& [word, ours] : alias.words) theirs.type += (theirs.type.empty() ? "" : " / ") + word;
    schema.update(json_type(theirs));
    schema["anyOf"].push_back({{"type", "null"}});
    schema["anyOf"].push_back(same);
  }
  return schema;
}

/// Merges the schemas that several types have for one key; without a default if their defaults differ.
void join(Json& known, const Json& schema) {
  if (known.value("default", Json()) != schema.value("default", Json())) known.erase("default");
  if (!known.contains("anyOf") || !schema.contains("anyOf")) return;
  for (const auto& one : schema["anyOf"])
    if (std::find(known["anyOf"].begin(), known["anyOf"].end(), one) == known["anyOf"].end())
      known["anyOf"].push_back(one);
}

/// Sets `schema` at the path `name` ("fa_config.pre_tokens") below `properties`.
void put(Json& properties, const std::string& name, const Json& schema) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) {
    auto& known = properties[name];
    if (known.is_null())
      known = schema;
    else
      join(known, schema);
    return;
  }
  auto& map = properties[name.substr(0, dot)];
  if (map.is_null())
    map = {{"type", Json::array({"object", "null"})}, {"additionalProperties", false}, {"properties", Json::object()}};
  put(map["properties"], name.substr(dot + 1), schema);
}

std::set<std::string> keys_of(const SchemaFacts& schema) {
  std::set<std::string> keys;
  for (const auto& option : schema.options) {
    keys.insert(option.name);
    for (const auto& alias : option.aliases) keys.insert(alias.name);
  }
  return keys;
}

const OptionFacts* option_of(const std::vector<SchemaFacts>& schemas, const std::string& key) {
  for (const auto& schema : schemas)
    for (const auto& option : schema.options)
      if (schema.key.empty() && option.name == key) return &option;
  return nullptr;
}

/// For each type that a file may choose: the keys of other types are not read. Words of a type that have several
/// spellings are not told apart here, so those are left to the program.
Json rules_of_choices(const std::vector<SchemaFacts>& schemas) {
  Json rules = Json::array();
  for (const auto& chosen : schemas) {
    if (chosen.key.empty()) continue;
    auto taken = keys_of(chosen);
    for (const auto& own : schemas)
      if (own.key != chosen.key) taken.merge(keys_of(own));
    Json barred = Json::object();
    for (const auto& other : schemas) {
      if (other.key != chosen.key || other.type == chosen.type) continue;
      for (const auto& key : keys_of(other))
        if (!taken.count(key) && key.find('.') == std::string::npos) barred[key] = false;
    }
    if (barred.empty()) continue;
    Json is{{"properties", {{chosen.key, {{"const", chosen.type}}}}}, {"required", Json::array({chosen.key})}};
    rules.push_back({{"if", is}, {"then", {{"properties", barred}}}});
  }
  return rules;
}

Json described(const std::vector<SchemaFacts>& schemas, const OptionFacts& option) {
  auto schema = schema_of(option);
  auto words = schema["description"].string();
  for (const auto& chosen : schemas)
    if (chosen.key == option.name && !chosen.doc.empty()) words += "\n- " + chosen.type + ": " + chosen.doc;
  schema["description"] = words;
  return schema;
}

Json schema_of_group(const std::string& group, const std::vector<SchemaFacts>& schemas) {
  auto properties = Json::object();
  for (const auto& schema : schemas)
    for (const auto& option : schema.options) {
      put(properties, option.name, described(schemas, option));
      for (const auto& alias : option.aliases) put(properties, alias.name, schema_of(alias, option, group));
    }
  Json whole{{"type", Json::array({"object", "null"})}, {"additionalProperties", false}, {"properties", properties}};
  const auto rules = rules_of_choices(schemas);
  if (!rules.empty()) whole["allOf"] = rules;
  return whole;
}

/// The key under its name or one of its aliases.
Json given(const OptionFacts& option) {
  Json any = Json::array({{{"required", Json::array({option.name})}}});
  for (const auto& alias : option.aliases)
    if (alias.name.find('.') == std::string::npos) any.push_back({{"required", Json::array({alias.name})}});
  return any.size() == 1 ? any[0] : Json{{"anyOf", any}};
}

/// The required keys of a file that is a complete recipe.
Json required_keys(const Facts& facts) {
  Json groups = Json::object(), names = Json::array();
  for (const auto& [group, schemas] : facts) {
    Json rules = Json::array();
    for (const auto& schema : schemas) {
      const auto* chooser = schema.key.empty() ? nullptr : option_of(schemas, schema.key);
      const bool usual = chooser == nullptr || chooser->default_value.scalar == schema.type;
      for (const auto& option : schema.options)
        if (option.required && usual) rules.push_back(given(option));
    }
    if (rules.empty()) continue;
    groups[group] = {{"type", "object"}, {"allOf", rules}};
    names.push_back(group);
  }
  return {{"required", names}, {"properties", groups}};
}

Json has(const std::string& group, const std::vector<std::string>& keys) {
  Json any = Json::array();
  for (const auto& key : keys) any.push_back({{"required", Json::array({key})}});
  return {{"required", Json::array({group})}, {"properties", {{group, {{"type", "object"}, {"anyOf", any}}}}}};
}

/// A file without a base that has a model or says how long it trains is a recipe by itself. One that begins from
/// another program's checkpoint has that one's model.
Json alone(const Facts& facts) {
  const Json based{{"required", Json::array({"base"})}};
  const Json begun = has("training_config", {"load_checkpoint", "load"});
  const Json run{{"anyOf", Json::array({{{"required", Json::array({"model_config"})}},
                                        has("training_config", {"training_iters", "train_iters", "epochs"}),
                                        has("dataset_config", {"train_samples"})})}};
  return {{"if", {{"allOf", Json::array({{{"not", based}}, {{"not", begun}}, run})}}}, {"then", required_keys(facts)}};
}

}  // namespace

std::string json_schema(const Facts& facts) {
  Json page{{"$schema", "https://json-schema.org/draft/2020-12/schema"},
            {"title", "Tessera recipe"},
            {"description", "Made by `tessera options --json-schema`."},
            {"type", "object"}};
  auto& groups = page["properties"];
  const Json file{{"type", "string"}, {"minLength", 1}};
  groups["base"] = {{"description", "Recipes that this one is laid over, looked for beside it; later ones win."},
                    {"anyOf", Json::array({file, {{"type", "array"}, {"items", file}}})}};
  for (const auto& [group, schemas] : facts) groups[group] = schema_of_group(group, schemas);
  page["patternProperties"] = {{"^x-", {{"description", "Holds anchors; not read."}}}};
  page["additionalProperties"] = false;
  page.update(alone(facts));
  page["$defs"] = json_definitions();
  return page.dump(1) + "\n";
}

std::string json_text(const Value& value) { return json_of(value).dump(); }

}  // namespace tessera::options
