#pragma once

#include "framework/checkpoint/layout.h"
#include "framework/recipe/recipe.h"

namespace tessera {

/// How a run of this recipe on so many data parallel ranks parts its checkpoints. Throws ConfigError when
/// parallel_config does not fit the model.
CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t data_ranks = 1);

/// Whether the feed-forward's first product has a gate.
bool is_gated(const Recipe& recipe);

}  // namespace tessera
