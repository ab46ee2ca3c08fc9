#pragma once

#include "framework/checkpoint/layout.h"
#include "framework/recipe/recipe.h"

// How the ranks of a recipe's run divide a checkpoint, taken from the models that they make. In all functions, `rows`
// is the number of rows of the vocabulary, see vocabulary() (recipe/build.h). All throw ConfigError if parallel_config
// does not fit the model.

namespace tessera::recipe {

/// The layout of a run on `data_ranks` data-parallel ranks, or on more if expert parallelism needs more.
checkpoint::CheckpointLayout saved_layout(const Recipe& recipe, std::int64_t rows, std::int64_t data_ranks = 1);

/// The weights that each rank holds: for each stage, CheckpointLayout::ranks() entries.
std::vector<checkpoint::RankWeights> rank_weights(const Recipe& recipe, std::int64_t rows);

/// The weight parts that each rank saves in our own format, in the order of rank_weights. Together they contain every
/// weight exactly once.
std::vector<std::vector<WeightPart>> saved_parts(const Recipe& recipe, std::int64_t rows);

}  // namespace tessera::recipe
