#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// The recipe of a model that another program describes: `tree`, with `sets` ("group.key=value") laid over it. Throws
/// ConfigError with all mistakes.
Recipe imported_recipe(options::Value tree, const std::vector<std::string>& sets, const Registries& registries);

/// A run that begins from another program's model (training_config.load_checkpoint) has that model's configuration
/// where the recipe says nothing: lays the recipe's model_config on it. What is wrong with it goes to `report`.
void lay_on_given_model(options::Value& tree, const Registries& registries, options::Report& report);

}  // namespace tessera::recipe
