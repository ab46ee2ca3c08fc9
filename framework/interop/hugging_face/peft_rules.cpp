#include "framework/interop/hugging_face/peft_rules.h"

#include <algorithm>
#include <cmath>

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

double peft_scale(const Value& lora_config, const std::string& module, std::int64_t rank) {
  const auto alpha = peft_number(lora_config.find("alpha_pattern"), module, peft_integer(lora_config, "lora_alpha", 8));
  const auto* root = lora_config.find("use_rslora");
  const auto r = static_cast<double>(rank);
  return static_cast<double>(alpha) / (root != nullptr && root->scalar == "true" ? std::sqrt(r) : r);
}

std::string peft_pattern_name(const PeftNames& names, const std::string& ours) {
  for (const auto& experts : names.experts())
    if (ours.rfind(experts.layer, 0) == 0 && (ours.ends_with(".linear_fc1") || ours.ends_with(".linear_fc2")))
      return experts.name + (ours.ends_with(".linear_fc1") ? ".gate_up_proj" : ".down_proj");
  const auto modules = names.of_ours(ours);
  if (modules.empty()) return ours;
  return modules.front()->name + (ours.ends_with(".mlp.router") ? ".weight" : "");
}

}  // namespace tessera::hugging_face
