#include "framework/recipe/recipe_differences.h"

#include <map>

#include "framework/options/yaml.h"

namespace tessera::recipe {
namespace {

constexpr std::size_t most_named = 8;

void flatten(const options::Value& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.kind != options::Value::Kind::group) {
    out[path] = text(value);
    return;
  }
  for (const auto& [name, field] : value.fields) flatten(field, path + "." + name, out);
}

/// The options that determine the names and shapes of a checkpoint's tensors.
std::map<std::string, std::string> deciding(const std::string& resolved) {
  const auto tree = options::parse_yaml(resolved, "resolved.yaml");
  std::map<std::string, std::string> all;
  if (const auto* model = tree.find("model_config")) flatten(*model, "model_config", all);
  for (const auto* key : {"optimizer_config.optimizer_type", "optimizer_config.sgd_momentum"})
    if (const auto* value = tree.at(key)) all[key] = text(*value);
  return all;
}

}  // namespace

std::string recipe_differences(const std::string& resolved_recipe, const checkpoint::Blobs& blobs) {
  const auto saved = blobs.find("resolved.yaml");
  if (saved == blobs.end()) return "";
  const auto ours = deciding(resolved_recipe), theirs = deciding(saved->second);
  std::string lines;
  std::size_t count = 0;
  for (const auto& [key, value] : ours) {
    const auto there = theirs.find(key);
    if (there == theirs.end() || there->second == value || ++count > most_named) continue;
    lines += text("\n  ", key, ": ", value, " in the recipe, ", there->second, " in the checkpoint");
  }
  if (count > most_named) lines += text("\n  and ", count - most_named, " more");
  return lines;
}

}  // namespace tessera::recipe
