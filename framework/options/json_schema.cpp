#include "framework/options/json_schema.h"

#include <nlohmann/json.hpp>

#include "framework/options/option_type.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Value& value) {
  double number = 0;
  bool flag = false;
  switch (value.kind) {
    case Value::Kind::none:
      return nullptr;
    case Value::Kind::scalar:
      if (OptionType<bool>::read(value, flag)) return flag;
      if (OptionType<double>::read(value, number)) return Json::parse(value.scalar, nullptr, false);
      return value.scalar;
    case Value::Kind::list: {
      auto list = Json::array();
      for (const auto& item : value.items) list.push_back(json_of(item));
      return list;
    }
    case Value::Kind::group: {
      auto map = Json::object();
      for (const auto& [name, field] : value.fields) map[name] = json_of(field);
      return map;
    }
  }
  return nullptr;
}

void limit(Json& schema, const std::string& words) {
  const auto space = words.find(' ');
  const auto sign = words.substr(0, space);
  const auto bound = json_of(Value::of(words.substr(space + 1), {}));
  schema[sign == ">="  ? "minimum"
         : sign == ">" ? "exclusiveMinimum"
         : sign == "<" ? "exclusiveMaximum"
                       : "maximum"] = bound;
}

/// What the text `type` of an option says, as a schema; {} where it says nothing that can be checked.
Json of_type(const std::string& type, const OptionFacts& option) {
  const std::string list = "list of ";
  if (type.rfind(list, 0) == 0) {
    auto inner = type.substr(list.size());
    inner.erase(0, inner.find_first_not_of("0123456789 "));
    return {{"type", "array"}, {"items", of_type(inner, option)}};
  }
  Json schema = Json::object();
  if (type == "int")
    schema["type"] = "integer";
  else if (type == "float")
    schema["type"] = "number";
  else if (type == "text")
    schema["type"] = "string";
  else if (!option.choices.empty()) {
    schema["enum"] = Json::array();
    for (const auto& word : option.choices) schema["enum"].push_back(json_of(Value::of(word, {})));
  }
  for (const auto& words : option.limits) limit(schema, words);
  return schema;
}

Json schema_of(const OptionFacts& option) {
  auto type = option.type;
  const std::string absent = " or null";
  if (option.nullable && type.size() > absent.size()) type = type.substr(0, type.size() - absent.size());
  Json whole{{"description", option.doc + (option.planned ? " Not built yet." : "")},
             {"default", json_of(option.default_value)}};
  auto& any = whole["anyOf"] = Json::array();
  if (option.planned) {
    any.push_back({{"enum", Json::array()}});
    for (const auto& value : option.neutral)
      any[0]["enum"].push_back(json_of(value == "null" ? Value{} : Value::of(value, {})));
  } else {
    any.push_back(of_type(type, option));
    if (option.nullable) any.push_back({{"type", "null"}});
  }
  any.push_back({{"type", "string"}, {"pattern", "\\$\\{"}});
  return whole;
}

/// Put `schema` at the path `name` ("fa_config.pre_tokens") below `properties`. An option that several choices have is
/// there once, without a default where theirs differ.
void put(Json& properties, const std::string& name, const Json& schema) {
  const auto dot = name.find('.');
  if (dot == std::string::npos) {
    auto& known = properties[name];
    if (known.is_null())
      known = schema;
    else if (known.value("default", Json()) != schema.value("default", Json()))
      known.erase("default");
    return;
  }
  auto& map = properties[name.substr(0, dot)];
  if (map.is_null())
    map = {{"type", Json::array({"object", "null"})}, {"additionalProperties", false}, {"properties", Json::object()}};
  put(map["properties"], name.substr(dot + 1), schema);
}

}  // namespace

std::string json_schema(const Facts& facts) {
  Json page{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "tessera recipe"}, {"type", "object"}};
  auto& groups = page["properties"];
  groups["base"] = {{"description", "Recipes that this one is laid over."}, {"type", Json::array({"string", "array"})}};
  for (const auto& [group, schemas] : facts) {
    auto properties = Json::object();
    for (const auto& schema : schemas)
      for (const auto& option : schema.options) {
        put(properties, option.name, schema_of(option));
        for (const auto& alias : option.aliases)
          put(properties, alias.name, {{"description", "Another name of " + option.name + "."}});
      }
    groups[group] = {
        {"type", Json::array({"object", "null"})}, {"additionalProperties", false}, {"properties", properties}};
  }
  page["patternProperties"] = {{"^x-", Json::object()}};
  page["additionalProperties"] = false;
  return page.dump(2) + "\n";
}

}  // namespace tessera
