#pragma once

#include "framework/checkpoint/layout.h"
#include "framework/recipe/recipe.h"

// How the ranks of a recipe divide a checkpoint: read off the models that they construct. `rows` everywhere: those of
// the vocabulary, see vocabulary() (recipe/build.h). All throw ConfigError if parallel_config does not fit the model.

namespace tessera::recipe {

/// The ranks of a run of this recipe on so many data-parallel ranks, or as many more as the division of experts takes.
checkpoint::CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t rows, std::int64_t data_ranks = 1);

/// What each of these ranks has of the model, stage by stage, in each CheckpointLayout::ranks().
std::vector<checkpoint::RankWeights> rank_weights(const Recipe& recipe, std::int64_t rows);

/// What each saves in our own format, in the same order: the parts that its model owns, together every weight once.
std::vector<std::vector<WeightPart>> saved_parts(const Recipe& recipe, std::int64_t rows);

}  // namespace tessera::recipe
