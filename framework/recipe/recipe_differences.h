#pragma once

#include <string>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::recipe {

/// Lists the options of the model and optimizer that differ between a recipe and the recipe saved in a checkpoint, one
/// line each: "model_config.hidden_size: 64 in the recipe, 32 in the checkpoint". `resolved_recipe` is a text of
/// resolved.yaml; `blobs` are the checkpoint's. Empty if nothing differs or the checkpoint has no resolved.yaml.
std::string recipe_differences(const std::string& resolved_recipe, const checkpoint::Blobs& blobs);

}  // namespace tessera::recipe
