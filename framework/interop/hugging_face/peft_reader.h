#pragma once

#include <string>

#include "framework/interop/hugging_face/peft_config.h"
#include "framework/interop/hugging_face/peft_export.h"
#include "framework/interop/hugging_face/weight_table.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/adapter_reader.h"
#include "framework/recipe/recipe.h"

namespace tessera::hugging_face {

/// The names and layouts that Transformers has for the weights of the model of `recipe`, which begins with `base`: by
/// the folder of Transformers that `base` is or came from, else by the first family that computes what the model does.
/// Throws ConfigError if there is none.
WeightTable names_of_run(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base);

/// The adapter_config.json of the folder of an adapter, with the options that name the modules for which its tensors
/// are. Without tensors beside the file, the options as they are there. Throws ConfigError as read_peft_config does.
PeftConfig read_peft_folder(const std::filesystem::path& folder, const options::Mappings& mappings);

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
