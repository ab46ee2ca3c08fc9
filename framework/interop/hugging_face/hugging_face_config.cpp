#include <algorithm>

#include "framework/base/files.h"
#include "framework/base/json.h"
#include "framework/interop/hugging_face/config_rules.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/packed_weights.h"
#include "framework/interop/tables/config_table.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

/// The table `name` on top of those it is `like`.
options::Value table_of(const options::Mappings& mappings, const std::string& name) {
  auto table = mappings.table(name);
  const auto* like = table.find("like");
  if (like == nullptr) return table;
  options::Value whole;
  whole.kind = options::Value::Kind::group;
  if (like->kind == options::Value::Kind::scalar) whole = table_of(mappings, like->scalar);
  for (const auto& item : like->items) whole.lay(table_of(mappings, item.scalar));
  whole.lay(std::move(table));
  return whole;
}

/// The class that config.json wants Transformers to load from Python code beside the weights, "MyForCausalLM"; empty:
/// none.
std::string class_of_code(const Json& json) {
  const auto map = json.value("auto_map", Json());
  if (!map.is_object()) return "";
  for (const char* kind : {"AutoModelForCausalLM", "AutoModel"})
    if (const auto* name = map.find(kind); name != nullptr && name->is_string())
      return name->string().substr(name->string().rfind('.') + 1);
  return "";
}

/// Code of the family's own class is an older or a newer text of the same model. Throws ConfigError for another class.
void check_code(const Json& json, const options::Value& family, const std::string& speaker,
                std::vector<std::string>& notes) {
  const auto* own = family.find("architecture");
  const auto name = class_of_code(json);
  if (own == nullptr || name.empty()) return;
  const auto ends = {"ForCausalLM", "LMHeadModel", "Model"};
  const auto stem = [&](std::string words) {
    for (const std::string end : ends)
      if (words.ends_with(end)) return words.substr(0, words.size() - end.size());
    return words;
  };
  if (stem(name) != stem(own->scalar))
    throw ConfigError(text(speaker, ": auto_map names Python code with the class ", name,
                           ", which is not the family's ", own->scalar,
                           " and may compute another model; if it computes the same, --ignore-key auto_map, ",
                           "or training_config.ignore_config_keys: [auto_map] in a recipe"));
  notes.push_back(
      text(speaker, ": auto_map names Python code, which is not run; the model is that of the family, ", own->scalar));
}

/// A classifier with one label has a score head in place of the output layer.
void take_score_head(const Json& json, options::Value& config, const std::string& speaker) {
  const auto names = json.value("architectures", Json());
  if (!names.is_array() || names.empty() || !(*names.begin()).is_string()) return;
  if (!(*names.begin()).string().ends_with(of_classifier)) return;
  const auto labels = json.value("id2label", Json());
  const auto count = labels.is_object() ? labels.size() : 2;  // Transformers leaves two labels out
  if (count != 1)
    throw ConfigError(
        text(speaker, ": a classifier of ", count, " labels; supported are reward models, which have one (id2label)"));
  const options::Origin origin{speaker, 0, "", 1};
  config.set("score_head", options::Value::of("true", origin));
  config.set("untie_embeddings_and_output_weights", options::Value::of("false", origin));
}

bool is_ignored(const options::Mappings& mappings, const std::string& key) {
  const auto& keys = mappings.ignored_keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

}  // namespace

std::vector<std::string> hugging_face_families(const options::Mappings& mappings) {
  const std::string folder = "models/", end = ".yaml";
  std::vector<std::string> families;
  for (const auto& name : mappings.names())
    if (name.rfind(folder, 0) == 0 && name != "models/common.yaml")
      families.push_back(name.substr(folder.size(), name.size() - folder.size() - end.size()));
  return families;
}

std::vector<std::string> families_to_choose_from(const options::Mappings& mappings) {
  std::vector<std::pair<int, std::string>> ranked;
  for (const auto& family : hugging_face_families(mappings))
    ranked.emplace_back(mappings.likes("models/" + family + ".yaml"), family);
  std::sort(ranked.begin(), ranked.end());
  std::vector<std::string> families;
  for (auto& [rank, family] : ranked) families.push_back(std::move(family));
  return families;
}

options::Value hugging_face_table(const options::Mappings& mappings, const std::string& family) {
  const auto families = hugging_face_families(mappings);
  if (std::find(families.begin(), families.end(), family) == families.end()) {
    std::string known;
    for (const auto& one : families) known += (known.empty() ? "" : ", ") + one;
    throw ConfigError(text("model_type ", family, " is not supported; supported are ", known));
  }
  return table_of(mappings, "models/" + family + ".yaml");
}

namespace {

/// The text of a config.json without a storage type of weights that can be read: the tensors themselves show it.
std::string without_storage_type(const std::string& words, Json json) {
  constexpr auto key = "quantization_config";
  if (!json.contains(key) || !reads_quantization(json[key])) return words;
  json.erase(key);
  return json.dump();
}

}  // namespace

HuggingFaceConfig parse_hugging_face_config(const std::string& words, const std::string& speaker,
                                            const options::Mappings& mappings) {
  const auto json = parse_json(words);
  if (!json.is_object()) throw ConfigError(text(speaker, ": is not a JSON object"));
  const auto type = json.value("model_type", Json());
  if (!type.is_string()) throw ConfigError(text(speaker, ": has no model_type"));
  try {
    const auto family = hugging_face_table(mappings, type.string());
    const auto common = mappings.table("models/common.yaml");
    const auto* weights = family.find("weights");
    if (weights == nullptr) throw ConfigError(text(family.origin, ": names no table of weights"));
    auto [config, notes] =
        tables::read_by_table(without_storage_type(words, json), speaker, family, &common, mappings.ignored_keys());
    if (!is_ignored(mappings, "auto_map")) check_code(json, family, speaker, notes);
    for (auto& note : without_facts(config, family, speaker)) notes.push_back(std::move(note));
    check_heads(config, speaker);
    take_score_head(json, config, speaker);
    return {std::move(config), type.get<std::string>(), weights->scalar, std::move(notes)};
  } catch (ConfigError& error) {
    const std::string message = error.what();
    if (message.rfind(speaker, 0) == 0) throw;
    throw ConfigError(text(speaker, ": ", message));
  }
}

HuggingFaceConfig read_hugging_face_config(const fs::path& file, const options::Mappings& mappings) {
  return parse_hugging_face_config(read_file(file), file.string(), mappings);
}

}  // namespace tessera::hugging_face
