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
#include "framework/recipe/build.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const std::string embedding_weight = "embedding.word_embeddings.weight";

/// It is in place of the output layer.
bool has_score_head(const recipe::Recipe& recipe) {
  const auto* score = recipe.resolved.at("model_config.score_head");
  return score != nullptr && score->scalar == "true";
}

/// The configuration of the base as its config.json says it.
HuggingFaceConfig config_of(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  if (const auto* model = dynamic_cast<const HuggingFaceModel*>(&base)) {
    const auto table = hugging_face_table(recipe.mappings, model->family());
    return {model->model_config(), model->family(), table.find("weights")->scalar};
  }
  const auto carried = base.blobs().find(std::string(carried_prefix) + "config.json");
  if (carried != base.blobs().end())
    return parse_hugging_face_config(carried->second, (base.folder() / carried->first).string(), recipe.mappings);
  const auto tokens = base.shape(embedding_weight)[0];
  const auto family =
      family_that_fits(recipe, tokens, families_to_choose_from(recipe.mappings), *recipe.registries, recipe.mappings);
  const auto table = hugging_face_table(recipe.mappings, family);
  return {whole_model_config(recipe, tokens), family, table.find("weights")->scalar};
}

/// Those of the base, and of the model where the base has none.
WeightShapes shapes_of(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  WeightShapes shapes;
  for (const auto& name : base.names()) shapes.emplace(name, base.shape(name));
  const auto rows = base.has(embedding_weight) ? base.shape(embedding_weight)[0] : 1;
  const auto model = recipe.architecture->build(recipe::whole_model(recipe, rows));
  for (const auto* parameter : model->parameters())
    if (!nn::is_of_adapter(parameter->name)) shapes.emplace(parameter->name, parameter->global_shape);
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

std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// PEFT takes all modules whose names end with one in modules_to_save, also within a word: norm is q_norm too. Adds the
/// words of those that the folder has.
void name_longer_words(options::Value& lora_config, const std::set<std::string>& whole) {
  for (auto& [name, list] : lora_config.fields) {
    if (name != "modules_to_save") continue;
    const auto given = list.items;
    std::set<std::string> words;
    for (const auto& module : whole)
      for (const auto& item : given)
        if (module.ends_with(item.scalar) && !any_is({module}, item.scalar)) words.insert(last_word(module));
    for (const auto& word : words) list.items.push_back(options::Value::of(word, list.origin));
  }
}

/// With ensure_weight_tying PEFT trains both ends of a tied table and writes both, where one is named.
void name_tied(options::Value& lora_config, const std::set<std::string>& whole) {
  for (auto& [name, list] : lora_config.fields) {
    if (name != "modules_to_save") continue;
    for (const auto& module : whole)
      if (std::none_of(list.items.begin(), list.items.end(),
                       [&](const auto& item) { return any_is({module}, item.scalar); }))
        list.items.push_back(options::Value::of(last_word(module), list.origin));
  }
}

/// The options with the names that the folder has tensors for.
void fit_to_tensors(PeftConfig& config, const fs::path& file) {
  const auto modules = modules_in(file);
  if (config.ties_tables) name_tied(config.lora_config, modules.whole);
  name_longer_words(config.lora_config, modules.whole);
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

WeightTable names_of_run(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  auto config = config_of(recipe, base);
  // The model may have a score head that its base has not.
  for (const char* option : {"score_head", "untie_embeddings_and_output_weights"})
    if (const auto* value = recipe.resolved.at(text("model_config.", option))) config.model_config.set(option, *value);
  if (has_score_head(recipe))
    config.model_config.set("untie_embeddings_and_output_weights", options::Value::of("false", {}));
  return weight_table(config.weights_table, config.model_config, recipe.mappings, base.folder().string());
}

PeftConfig read_peft_folder(const fs::path& folder, const options::Mappings& mappings) {
  auto config = read_peft_config(folder / peft_config_file, mappings);
  if (fs::exists(folder / peft_weights_file)) fit_to_tensors(config, folder / peft_weights_file);
  return config;
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
  if (has_score_head(recipe)) how.labels.task_type = classifier_task;
  return how;
}

bool PeftReader::is_adapter(const fs::path& folder) const { return fs::exists(folder / peft_config_file); }

recipe::AdapterDescription PeftReader::describe(const fs::path& folder, const options::Mappings& mappings) const {
  return description_of(read_peft_folder(folder, mappings));
}

recipe::OpenedAdapter PeftReader::open(const fs::path& folder, const recipe::Recipe& recipe,
                                       const checkpoint::OpenedCheckpoint& base) const {
  auto adapter =
      std::make_unique<PeftAdapter>(folder, names_of_run(recipe, base), shapes_of(recipe, base), recipe.mappings);
  auto description = describe(folder, recipe.mappings);
  if (adapter->changes_nothing())
    description.notes.push_back(text(folder.string(),
                                     ": a factor of every layer is zero, so the model computes what its base does; was "
                                     "the adapter saved before its first step?"));
  return {std::move(description), std::move(adapter)};
}

}  // namespace tessera::hugging_face
