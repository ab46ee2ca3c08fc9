#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// Reads the recipe `tree`, which describes another program's model, with `sets` ("group.key=value") applied. Throws
/// ConfigError with all mistakes, one per line.
Recipe imported_recipe(options::Value tree, const std::vector<std::string>& sets, const Registries& registries);

/// For a run that begins from another program's checkpoint (training_config.load_checkpoint): sets the options of
/// model_config that the recipe does not give from that checkpoint's configuration; with use_checkpoint_args those that
/// this option names. Mistakes go to `report`.
void lay_on_given_model(options::Value& tree, const Registries& registries, options::Report& report);

}  // namespace tessera::recipe
