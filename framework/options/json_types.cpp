#include "framework/options/json_types.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "framework/base/error.h"
#include "framework/options/limits.h"
#include "framework/options/option_type.h"

namespace tessera::options {
namespace {

// What YAML calls text may be a number to us: "3", and 3e-4 in the eyes of readers of YAML 1.1. JSON Schema has no
// limits for the number that a text holds, so the limits that options have are patterns.

const std::string digits = "(?:[0-9]+\\.?[0-9]*|\\.[0-9]+)", exponent = "(?:[eE][-+]?[0-9]{1,2})?";
const std::string whole = "(?:[0-9]{1,9}(?:\\.0*)?|[0-9]{1,6}[eE]\\+?0?[0-9]|0x[0-9a-fA-F]{1,7}|0o[0-7]{1,9})";
const std::string not_zero = "(?=(?:0x|0o)?[^eE]*[1-9])";
const std::string below_one =
    "(?:(?:0+\\.?[0-9]*|\\.[0-9]+)(?:[eE]-[0-9]{1,2})?|[0-9]\\.?[0-9]*[eE]-0*[1-9][0-9]?|"
    "[0-9]{2}\\.?[0-9]*[eE]-0*(?:[2-9]|[1-9][0-9]))";

const std::string above_one = "0*(?:[2-9]|[1-9][0-9]+|1(?=\\.[0-9]*[1-9]))\\.?[0-9]*(?:[eE]\\+?[0-9]{1,2})?";

/// Begins a text of a whole number that is at least `low`, 2 to 9.
std::string at_least_digit(double low) {
  return text(not_zero, "(?!\\+?(?:0x|0o)?0*[1-", low - 1, "](?:\\.0*)?(?:[eE]\\+?0?0)?$)\\+?");
}

struct Limit {
  std::string sign;
  double bound = 0;
  Json json;
};

std::vector<Limit> limits_of(const OptionFacts& option) {
  std::vector<Limit> all;
  for (const auto& words : option.limits) {
    const auto space = words.find(' ');
    const auto bound = Value::of(words.substr(space + 1), {});
    Limit limit{words.substr(0, space), 0, json_of(bound)};
    OptionType<double>::read(bound, limit.bound);
    all.push_back(limit);
  }
  return all;
}

/// Texts of numbers from 0 that are below the largest power of ten within `bound`: a limit far from what anybody gives
/// needs no more.
std::string up_to(double bound, bool integer) {
  const int power = static_cast<int>(std::floor(std::log10(bound)));
  if (power < 1) return "";
  const std::string fraction = integer ? "(?:\\.0*)?" : "\\.?[0-9]*";
  std::string all = text("[0-9]{1,", integer ? std::min(power, 9) : power, "}", fraction);
  for (int e = 0; e <= 9 && e < power; ++e)
    all += text("|[0-9]{1,", std::min(power - e, 6), "}", integer ? "" : fraction, "[eE]\\+?0?", e);
  if (!integer) all += text("|(?:[0-9]{1,", power, "}\\.?[0-9]*|\\.[0-9]+)(?:[eE]-[0-9]{1,2})?");
  const int bits = static_cast<int>(std::floor(std::log2(bound + 1)));
  if (integer && bits >= 4) all += text("|0x[0-9a-fA-F]{1,", bits / 4, "}|0o[0-7]{1,", bits / 3, "}");
  return "(?:" + all + ")";
}

/// The pattern of texts that hold a number within `limits`; empty where no pattern says that.
std::string number_pattern(bool integer, const std::vector<Limit>& limits) {
  const auto usual = integer ? whole : digits + exponent;
  std::string front = "[-+]?", body = usual;
  for (const auto& [sign, bound, json] : limits) {
    if ((sign == ">=" && bound == 0) || (sign == ">=" && bound == -1 && integer))
      front = bound == 0 ? "\\+?" : "(?:\\+?|-0*(?=1$))";
    else if ((sign == ">" && bound == 0) || (sign == ">=" && bound == 1 && integer))
      front = not_zero + "\\+?";
    else if (sign == ">=" && bound >= 2 && bound <= 9 && integer)
      front = at_least_digit(bound);
    else if (sign == "<" && bound == 1 && !integer)
      body = below_one;
    else if (sign == "<=" && bound == 1 && !integer)
      body = "(?:" + below_one + "|0*1(?:\\.0*)?)";
    else if (sign == ">" && bound == 1 && !integer)
      front = "\\+?", body = above_one;
    else if (sign == "<=" && bound > 1 && body == usual && bound < 1e15)
      body = up_to(bound, integer);
    else if (!(sign == "<=" && bound >= 1e15 && body == usual))
      return "";
    if (body.empty()) return "";
  }
  return "^" + front + body + "$";
}

Json number(bool integer, const std::vector<Limit>& limits) {
  Json schema{{"type", integer ? "integer" : "number"}};
  if (integer) schema["minimum"] = INT64_MIN, schema["maximum"] = INT64_MAX;
  for (const auto& [sign, bound, json] : limits) {
    const auto* word = sign == ">="  ? "minimum"
                       : sign == ">" ? "exclusiveMinimum"
                       : sign == "<" ? "exclusiveMaximum"
                                     : "maximum";
    schema[word] = json;
    if (sign == ">") schema.erase("minimum");
    if (sign == "<") schema.erase("maximum");
  }
  return schema;
}

Json text_with(const std::string& pattern) { return {{"type", "string"}, {"pattern", pattern}}; }
Json defined(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

void put_number(Json& any, bool integer, const OptionFacts& option) {
  const auto limits = limits_of(option);
  if (limits.empty()) {
    any.push_back(defined(integer ? "int" : "float"));
    return;
  }
  any.push_back(number(integer, limits));
  const auto pattern = number_pattern(integer, limits);
  if (!pattern.empty()) any.push_back(text_with(pattern));
}

std::vector<std::string> words_in(const std::string& type) {
  std::vector<std::string> all;
  for (std::size_t at = 0; at < type.size();) {
    const auto end = std::min(type.find(" / ", at), type.size());
    all.push_back(type.substr(at, end - at));
    at = end + 3;
  }
  return all;
}

void put_words(Json& any, const std::vector<std::string>& words, const std::vector<std::string>& others) {
  const auto has = [&](const char* word) { return std::find(words.begin(), words.end(), word) != words.end(); };
  Json list = Json::array(), further = Json::array();
  for (const auto& word : words)
    if (word != "true" && word != "false") list.push_back(word);
  for (const auto& word : others) further.push_back(word);
  if (!list.empty()) any.push_back({{"enum", list}});
  if (has("true") && has("false"))
    any.push_back(defined("switch"));
  else if (has("true"))
    any.push_back(defined("yes"));
  else if (has("false"))
    any.push_back(defined("no"));
  if (!further.empty()) any.push_back({{"deprecated", true}, {"enum", further}});
}

/// Substitutes `item` for references to #/$defs/item.
void fill_in(Json& schema, const Json& item) {
  if (schema.is_array()) {
    for (auto& part : schema) fill_in(part, item);
  } else if (schema.is_object() && schema.value("$ref", Json()) == "#/$defs/item") {
    schema = item;
  } else if (schema.is_object()) {
    const auto parts = schema;
    for (const auto& [name, part] : parts.items()) fill_in(schema[name], item);
  }
}

Json any_of(Json any) {
  any.push_back(defined("environment"));
  return {{"anyOf", std::move(any)}};
}

void put_type(Json& any, const std::string& type, const OptionFacts& option);

Json list_of(std::string type, const OptionFacts& option) {
  Json list{{"type", "array"}};
  const auto count = type.find_first_not_of("0123456789");
  if (count > 0 && count < type.size()) {
    list["minItems"] = list["maxItems"] = std::stoi(type.substr(0, count));
    type = type.substr(count + 1);
  }
  Json any = Json::array();
  put_type(any, type, option);
  list["items"] = any_of(any);
  return list;
}

/// What the name of a type says, as alternatives.
void put_type(Json& any, const std::string& type, const OptionFacts& option) {
  const std::string list = "list of ";
  if (!option.json_schema.empty()) {
    auto schema = read_json(option.json_schema);
    Json item = Json::array();
    put_number(item, true, option);
    fill_in(schema, any_of(item));
    any.push_back(schema);
  } else if (type.rfind(list, 0) == 0) {
    any.push_back(list_of(type.substr(list.size()), option));
  } else if (type == "int" || type == "float") {
    put_number(any, type == "int", option);
  } else if (type == "text") {
    any.push_back(defined("text"));
  } else {
    put_words(any, words_in(type), option.other_choices);
  }
}

void put_neutral(Json& any, const OptionFacts& option, const std::string& type) {
  std::vector<std::string> words;
  Json list = Json::array();
  for (const auto& value : option.neutral) {
    double number = 0;
    const auto items = type.rfind("list of ", 0) == 0 ? parse_json(value) : Json();
    if (value == "null" && option.nullable)
      list.push_back(nullptr);
    else if (items.is_array())
      list.push_back(items);
    else if (type == "true / false" || type == "text")
      words.push_back(value);
    else if (OptionType<double>::read(Value::of(value, {}), number))
      list.push_back(json_of(Value::of(value, {}))), list.push_back(value);
    else
      words.push_back(value);
  }
  if (!list.empty()) any.push_back({{"enum", list}});
  put_words(any, words, {});
}

/// The type's name without "or null".
std::string bare_type(const OptionFacts& option) {
  const std::string absent = " or null";
  const auto& type = option.type;
  return option.nullable && type.size() > absent.size() && type.ends_with(absent)
             ? type.substr(0, type.size() - absent.size())
             : type;
}

}  // namespace

Json json_of(const Value& value) {
  double number = 0;
  bool flag = false;
  switch (value.kind) {
    case Value::Kind::none:
      return nullptr;
    case Value::Kind::scalar:
      if (OptionType<bool>::read(value, flag)) return flag;
      if (OptionType<double>::read(value, number)) {
        const auto json = parse_json(value.scalar);
        return json.is_discarded() ? Json(number) : json;
      }
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

Json json_type(const OptionFacts& option) {
  Json any = Json::array();
  if (option.planned)
    put_neutral(any, option, bare_type(option));
  else
    put_type(any, bare_type(option), option);
  if (option.nullable && !option.planned) any.push_back({{"type", "null"}});
  return any_of(any);
}

Json json_item(const OptionFacts& option) {
  const std::string list = "list of ";
  Json any = Json::array();
  const auto type = bare_type(option);
  put_type(any, type, option);
  return type.rfind(list, 0) == 0 && option.json_schema.empty() ? any[0]["items"] : any_of(any);
}

Json json_definitions() {
  const std::string name = "[A-Za-z_][A-Za-z0-9_]*(?::-.*)?\\}";
  Json list = Json::object();
  list["environment"] = {{"description", "${NAME} of the environment, or ${NAME:-words} where it may be unset."},
                         {"type", "string"},
                         {"pattern", "(?:^|[^$])\\$\\{" + name}};
  list["yes"] = {{"enum", Json::array({true, "true", "True", "TRUE"})}};
  list["no"] = {{"enum", Json::array({false, "false", "False", "FALSE"})}};
  list["switch"] = {{"anyOf", Json::array({{{"type", "boolean"}}, defined("yes"), defined("no")})}};
  list["text"] = {
      {"anyOf", Json::array({{{"type", "string"}, {"not", {{"pattern", "(?:^|[^$])\\$\\{(?!" + name + ")"}}}},
                             {{"type", Json::array({"number", "boolean"})}}})}};
  list["int"] = {{"anyOf", Json::array({number(true, {}), text_with(number_pattern(true, {}))})}};
  list["float"] = {{"anyOf", Json::array({number(false, {}), text_with(number_pattern(false, {}))})}};
  const std::vector<Limit> limits = {{">=", 0, 0}, {"<=", most_factor, most_factor}};
  list["factor"] = {{"anyOf", Json::array({number(false, limits), text_with(number_pattern(false, limits)),
                                           defined("environment")})}};
  return list;
}

}  // namespace tessera::options
