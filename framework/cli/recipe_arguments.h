#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/recipe/recipe.h"

namespace tessera {

/// RECIPE [--set group.key=value ...]: what every command that reads a recipe takes.
struct RecipeArguments {
  std::string file;
  std::vector<std::string> sets;
};
void add_recipe_arguments(CLI::App& command, RecipeArguments& arguments);
/// Only [--set group.key=value ...].
void add_set_arguments(CLI::App& command, std::vector<std::string>& sets);

/// The recipe they name. Notes, such as other spellings that were read, go to `notes`, a line each. Throws ConfigError
/// with all mistakes, a line each.
Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, std::ostream& notes);

}  // namespace tessera
