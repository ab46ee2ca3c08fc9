#pragma once

#include <filesystem>
#include <memory>

#include "framework/interop/hugging_face/weight_table.h"
#include "framework/recipe/saved_adapter.h"

namespace tessera::hugging_face {

/// The names that Transformers has for the weights of the model of `recipe`, which begins with `base`: by the folder of
/// Transformers that `base` is or came from, else by the first family that computes what the model does. Throws
/// ConfigError if there is none.
WeightTable names_of_run(const recipe::Recipe& recipe, const checkpoint::OpenedCheckpoint& base);

/// Adapters of PEFT, for runs that start from one.
class PeftFormat final : public recipe::AdapterFormat {
 public:
  model::LoraOptions options(const std::filesystem::path& folder, const options::Mappings& mappings) const override;
  /// Names are those of names_of_run().
  std::unique_ptr<checkpoint::WeightSource> open(const std::filesystem::path& folder, const recipe::Recipe& recipe,
                                                 const checkpoint::OpenedCheckpoint& base) const override;
};

}  // namespace tessera::hugging_face
