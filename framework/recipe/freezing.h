#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// "the nearest names are a, b and c": those of `names` that differ least from the name or regular expression
/// `pattern`.
std::string nearest_to(const std::string& pattern, std::vector<std::string> names);

/// Reports what is wrong with training_config.frozen_parameters and trainable_parameters: patterns that cannot be read
/// or match no parameter, and a run that trains nothing. Constructs the model, so `recipe` must be right otherwise:
/// does nothing if `report` has a problem.
void check_freezing(const Recipe& recipe, options::Report& report);

}  // namespace tessera::recipe
