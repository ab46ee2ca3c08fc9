#pragma once

#include "framework/checkpoint/layout.h"
#include "framework/checkpoint/reshard.h"
#include "framework/recipe/recipe.h"

namespace tessera {

/// The division of a checkpoint in another program's format by a run of this recipe on so many data-parallel ranks.
/// Throws ConfigError if parallel_config does not fit the model.
CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t data_ranks = 1);

/// What the ranks of this recipe's layout save in our own format, stage by stage, in each the tensor-parallel ranks:
/// the boxes that their models own, together every weight exactly once. `rows`: see vocabulary() (recipe/build.h).
std::vector<std::vector<TensorBox>> saved_boxes(const Recipe& recipe, std::int64_t rows);

}  // namespace tessera
