#include "framework/interop/hugging_face/peft_reader.h"

#include <memory>
#include <utility>
#include <vector>

#include "framework/base/json.h"
#include "framework/interop/hugging_face/family.h"
#include "framework/interop/hugging_face/hugging_face.h"
#include "framework/interop/hugging_face/peft_adapter.h"
#include "framework/interop/hugging_face/peft_config.h"

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

recipe::AdapterDescription description_of(PeftConfig config) {
  return {std::move(config.lora_config), std::move(config.base), std::move(config.notes)};
}

}  // namespace

WeightTable table_of_base(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base) {
  if (const auto* theirs = dynamic_cast<const HuggingFaceModel*>(&base)) return theirs->table();
  auto candidates = hugging_face_families(recipe.mappings);
  if (const auto own = carried_family(base.blobs()); !own.empty()) candidates.insert(candidates.begin(), own);
  const auto rows = base.shape("embedding.word_embeddings.weight")[0];
  const auto family = family_that_fits(recipe, rows, candidates, *recipe.registries, recipe.mappings);
  const auto table = hugging_face_table(recipe.mappings, family);
  return weight_table(table.find("weights")->scalar, whole_model_config(recipe, rows), recipe.mappings, family);
}

bool PeftReader::is_adapter(const fs::path& folder) const { return fs::exists(folder / peft_config_file); }

recipe::AdapterDescription PeftReader::describe(const fs::path& folder, const options::Mappings& mappings) const {
  return description_of(read_peft_config(folder / peft_config_file, mappings));
}

recipe::OpenedAdapter PeftReader::open(const fs::path& folder, const recipe::Recipe& recipe,
                                       const checkpoint::OpenedCheckpoint& base) const {
  WeightShapes shapes;
  for (const auto& name : base.names()) shapes.emplace(name, base.shape(name));
  auto adapter = std::make_unique<PeftAdapter>(folder, table_of_base(recipe, base), shapes, recipe.mappings);
  auto description = description_of(adapter->config());
  return {std::move(description), std::move(adapter)};
}

}  // namespace tessera::hugging_face
