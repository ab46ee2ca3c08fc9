#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/convert/source.h"
#include "framework/recipe/recipe.h"

namespace tessera {

/// [--from PROGRAM] [--arg N=value ...] [--env NAME=value ...]: how another program's script is read.
struct ForeignArguments {
  std::string from;
  std::vector<std::string> positional, environment;
};
void add_foreign_arguments(CLI::App& command, ForeignArguments& arguments);
/// The same, taken apart. Throws ConfigError.
SourceOptions source_options(const ForeignArguments& arguments);

/// RECIPE [--set group.key=value ...]: what every command that reads a recipe takes. RECIPE may be another program's
/// script.
struct RecipeArguments {
  std::string file;
  std::vector<std::string> sets;
  ForeignArguments foreign;
};
void add_recipe_arguments(CLI::App& command, RecipeArguments& arguments);
/// Only [--set group.key=value ...].
void add_set_arguments(CLI::App& command, std::vector<std::string>& sets);

/// The recipe they name; what is wrong or to be noted, such as other spellings that were read, goes to `report`.
Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, Report& report);
/// The same. Notes go to `notes`, a line each. Throws ConfigError with all mistakes, a line each.
Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, std::ostream& notes);

}  // namespace tessera
