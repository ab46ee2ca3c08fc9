#pragma once

#include <string>

#include "framework/interop/hugging_face/peft_export.h"
#include "framework/interop/hugging_face/weight_table.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/adapter_reader.h"
#include "framework/recipe/recipe.h"

namespace tessera::hugging_face {

/// Transformers' names and layouts for the model of `recipe`, whose weights are `base`: the table of its folder; of a
/// checkpoint of ours, that of the family that it was imported from, or of the first that computes what it does. Throws
/// ConfigError if there is none.
WeightTable table_of_base(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base);

/// How the trained part of `adapted` is written for PEFT. Throws ConfigError if it has no adapters.
PeftExport export_of(const recipe::AdaptedModel& adapted);

/// Folders of PEFT: adapter_config.json and adapter_model.safetensors.
class PeftReader final : public recipe::AdapterReader {
 public:
  bool is_adapter(const std::filesystem::path& folder) const override;
  recipe::AdapterDescription describe(const std::filesystem::path& folder,
                                      const options::Mappings& mappings) const override;
  recipe::OpenedAdapter open(const std::filesystem::path& folder, const recipe::Recipe& recipe,
                             const checkpoint::OpenedCheckpoint& base) const override;
};

}  // namespace tessera::hugging_face
