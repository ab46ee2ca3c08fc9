#pragma once

#include <string>

#include "framework/checkpoint/checkpoint.h"

namespace tessera::recipe {

/// Which options of the model, and which optimizer, a recipe has otherwise than the one saved in a checkpoint: a line
/// for each, "model_config.hidden_size: 64 in the recipe, 32 in the checkpoint". Both are texts of resolved.yaml; empty
/// where nothing differs or the checkpoint (`blobs`) has none.
std::string recipe_differences(const std::string& resolved_recipe, const checkpoint::Blobs& blobs);

}  // namespace tessera::recipe
