#include "framework/interop/hugging_face/peft_reader.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/json.h"
#include "framework/checkpoint/safetensors.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_config.h"
#include "framework/nn/adapter.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

/// model_type of the config.json that a checkpoint of ours carries; empty: it carries none.
std::string carried_family(const checkpoint::Blobs& blobs) {
  const auto carried = blobs.find(std::string(carried_prefix) + "config.json");
  const auto json = carried == blobs.end() ? Json() : parse_json(carried->second);
  if (!json.is_object() || !json.contains("model_type") || !json["model_type"].is_string()) return "";
  return json["model_type"].string();
}

bool has_score_head(const options::Value& model_config) {
  const auto* score = model_config.find("score_head");
  return score != nullptr && score->scalar == "true";
}

/// Of every weight of the model of `recipe` on the base: a score head has the width of the model.
WeightShapes shapes_of(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  WeightShapes shapes;
  for (const auto& name : base.names())
    if (!nn::is_of_adapter(name)) shapes.emplace(name, base.shape(name));
  const auto rows = base.shape("embedding.word_embeddings.weight");
  if (has_score_head(whole_model_config(recipe, rows[0]))) shapes.emplace("score.weight", Shape{1, rows[1]});
  return shapes;
}

/// What the tensors of a folder are on: the modules with factors, and those with parameters trained whole.
struct ModulesInFolder {
  std::set<std::string> adapted, whole;
};

ModulesInFolder modules_in(const fs::path& file) {
  ModulesInFolder all;
  const checkpoint::SafetensorsReader tensors(file);
  for (const auto& name : tensors.names()) {
    if (const auto factor = name.find(".lora_"); factor != std::string::npos)
      all.adapted.insert(name.substr(0, factor));
    else if (name.find(".base_layer.") == std::string::npos && name.ends_with(".weight"))
      all.whole.insert(name.substr(0, name.rfind('.')));
  }
  return all;
}

bool any_is(const std::set<std::string>& modules, const std::string& name) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const auto& module) { return module == name || module.ends_with("." + name); });
}

/// Leaves names out of a list for which the folder has nothing: PEFT lets them match nothing, a recipe does not.
void leave_out_absent(options::Value& lora_config, const std::string& option, const std::set<std::string>& modules) {
  for (auto& [name, list] : lora_config.fields)
    if (name == option) std::erase_if(list.items, [&](const auto& item) { return !any_is(modules, item.scalar); });
  std::erase_if(lora_config.fields, [&](const auto& field) {
    return field.name == option && field.value.kind == options::Value::Kind::list && field.value.items.empty();
  });
}

/// With ensure_weight_tying PEFT trains both ends of a tied table and writes both, where one is named.
void name_tied(options::Value& lora_config, const std::set<std::string>& whole) {
  for (auto& [name, list] : lora_config.fields) {
    if (name != "modules_to_save") continue;
    for (const auto& module : whole)
      if (std::none_of(list.items.begin(), list.items.end(),
                       [&](const auto& item) { return any_is({module}, item.scalar); }))
        list.items.push_back(options::Value::of(module.substr(module.rfind('.') + 1), list.origin));
  }
}

/// The options with the names that the folder has tensors for.
void fit_to_tensors(PeftConfig& config, const fs::path& file) {
  const auto modules = modules_in(file);
  if (config.ties_tables) name_tied(config.lora_config, modules.whole);
  leave_out_absent(config.lora_config, "target_modules", modules.adapted);
  leave_out_absent(config.lora_config, "modules_to_save", modules.whole);
}

recipe::AdapterDescription description_of(PeftConfig config) {
  recipe::AdapterDescription out;
  out.lora_config = std::move(config.lora_config);
  out.base = std::move(config.base);
  out.notes = std::move(config.notes);
  if (config.task_type == classifier_task) out.sets.emplace_back("model_config.score_head=true");
  return out;
}

}  // namespace

WeightTable table_of_base(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  const auto* theirs = dynamic_cast<const HuggingFaceModel*>(&base);
  const auto rows = base.shape("embedding.word_embeddings.weight")[0];
  const auto config = whole_model_config(recipe, rows);
  if (theirs != nullptr && has_score_head(config) == has_score_head(theirs->model_config())) return theirs->table();
  auto candidates = hugging_face_families(recipe.mappings);
  const auto own = theirs != nullptr ? theirs->family() : carried_family(base.blobs());
  if (!own.empty()) candidates.insert(candidates.begin(), own);
  const auto family = family_that_fits(recipe, rows, candidates, *recipe.registries, recipe.mappings);
  const auto table = hugging_face_table(recipe.mappings, family);
  return weight_table(table.find("weights")->scalar, config, recipe.mappings, family);
}

PeftExport export_of(const recipe::AdaptedModel& adapted) {
  const auto& recipe = adapted.recipe;
  if (!recipe.lora.use_lora)
    throw ConfigError(
        text(adapted.folder.string(), ": has no adapters; expected a checkpoint of a run with lora_config.use_lora"));
  PeftExport how;
  if (const auto* group = recipe.resolved.find("lora_config")) how.lora_config = *group;
  how.alpha = [forms = recipe::adapters_of(recipe), root = recipe.lora.use_rslora](const std::string& ours) {
    const auto& form = forms.at(ours);
    const auto rank = static_cast<double>(form.rank);
    return std::llround(form.scale * (root ? std::sqrt(rank) : rank));
  };
  how.labels.base = adapted.base_name.empty() ? recipe.training.load_checkpoint.value_or("") : adapted.base_name;
  if (has_score_head(whole_model_config(recipe, 1))) how.labels.task_type = classifier_task;
  return how;
}

bool PeftReader::is_adapter(const fs::path& folder) const { return fs::exists(folder / peft_config_file); }

recipe::AdapterDescription PeftReader::describe(const fs::path& folder, const options::Mappings& mappings) const {
  auto config = read_peft_config(folder / peft_config_file, mappings);
  fit_to_tensors(config, folder / peft_weights_file);
  return description_of(std::move(config));
}

recipe::OpenedAdapter PeftReader::open(const fs::path& folder, const recipe::Recipe& recipe,
                                       const checkpoint::OpenedCheckpoint& base) const {
  auto adapter =
      std::make_unique<PeftAdapter>(folder, table_of_base(recipe, base), shapes_of(recipe, base), recipe.mappings);
  return {describe(folder, recipe.mappings), std::move(adapter)};
}

}  // namespace tessera::hugging_face
