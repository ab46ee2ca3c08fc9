#include "framework/interop/hugging_face/peft_format.h"

#include <string>
#include <utility>

#include "framework/base/error.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_config.h"
#include "framework/recipe/build.h"
#include "framework/recipe/recipe.h"

namespace tessera::hugging_face {
namespace {

namespace fs = std::filesystem;

const std::string embedding_weight = "embedding.word_embeddings.weight";

void require_adapter(const fs::path& folder) {
  if (!fs::exists(folder / peft_config_file))
    throw ConfigError(text("lora_config.adapter: ", folder.string(), " has no ", peft_config_file,
                           "; give the folder of an adapter that PEFT wrote"));
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
      family_that_fits(recipe, tokens, hugging_face_families(recipe.mappings), *recipe.registries, recipe.mappings);
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

}  // namespace

WeightTable names_of_run(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  auto config = config_of(recipe, base);
  // The model may have a score head that its base has not.
  for (const char* option : {"score_head", "untie_embeddings_and_output_weights"})
    if (const auto* value = recipe.resolved.at(text("model_config.", option))) config.model_config.set(option, *value);
  return weight_table(config.weights_table, config.model_config, recipe.mappings, base.folder().string());
}

model::LoraOptions PeftFormat::options(const fs::path& folder, const options::Mappings& mappings) const {
  require_adapter(folder);
  const auto file = folder / peft_config_file;
  return lora_options(read_peft_config(file, mappings).lora_config, file.string());
}

std::unique_ptr<checkpoint::WeightSource> PeftFormat::open(const fs::path& folder, const recipe::Recipe& recipe,
                                                           const checkpoint::OpenedCheckpoint& base) const {
  require_adapter(folder);
  return std::make_unique<PeftAdapter>(folder, names_of_run(recipe, base), shapes_of(recipe, base), recipe.mappings);
}

}  // namespace tessera::hugging_face
