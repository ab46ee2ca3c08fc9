#pragma once

#include <optional>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/recipe/recipe.h"
#include "framework/training/options/option_changes.h"

namespace tessera::recipe {

/// The options whose effective values differ between `recipe` and the recipe of a checkpoint: the resolved recipe among
/// its files `saved`, else `described`, a recipe that may have only some of the options; only these are compared then.
/// `files`: the files that the run saves in its own checkpoints; the content of the tokenizer's files is compared with
/// `saved`. Options that have no effect, options of types that are not chosen, and options whose changes are silent are
/// left out. Nothing if there is no recipe to compare with, or it cannot be read.
std::optional<std::vector<training::OptionChange>> recipe_changes(const Recipe& recipe, const checkpoint::Blobs& files,
                                                                  const checkpoint::Blobs& saved,
                                                                  const options::Value* described);

}  // namespace tessera::recipe
