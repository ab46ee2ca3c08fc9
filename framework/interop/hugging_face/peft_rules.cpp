#include "framework/interop/hugging_face/peft_rules.h"

#include <algorithm>

#include "framework/unicode/regex.h"

namespace tessera::hugging_face {
namespace {

using options::Value;

bool matches_whole(const std::string& pattern, const std::string& name) {
  const unicode::Regex regex("\\A(?:" + pattern + ")\\z");
  return unicode::Regex::Finder(regex, name).next().has_value();
}

bool is_or_ends_in(const std::string& name, const std::string& end) { return name == end || name.ends_with("." + end); }

}  // namespace

bool peft_names_module(const Value* names, const std::string& module) {
  if (names == nullptr || names->kind == Value::Kind::none) return false;
  if (names->kind == Value::Kind::scalar) return matches_whole(names->scalar, module);
  return std::any_of(names->items.begin(), names->items.end(),
                     [&](const auto& end) { return is_or_ends_in(module, end.scalar); });
}

bool peft_in_layers(const Value* layers, const std::string& module) {
  if (layers == nullptr || layers->kind == Value::Kind::none) return true;
  const auto one = [&](const Value& number) { return module.find("." + number.scalar + ".") != std::string::npos; };
  return layers->kind == Value::Kind::list ? std::any_of(layers->items.begin(), layers->items.end(), one)
                                           : one(*layers);
}

std::int64_t peft_number(const Value* patterns, const std::string& module, std::int64_t otherwise) {
  if (patterns == nullptr) return otherwise;
  for (const auto& [pattern, number] : patterns->fields)
    if (matches_whole("(?:.*\\.)?(?:" + pattern + ")", module)) return std::stoll(number.scalar);
  return otherwise;
}

std::int64_t peft_integer(const Value& lora_config, const char* option, std::int64_t otherwise) {
  const auto* value = lora_config.find(option);
  return value == nullptr || value->kind != Value::Kind::scalar ? otherwise : std::stoll(value->scalar);
}

}  // namespace tessera::hugging_face
