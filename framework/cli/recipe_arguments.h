#pragma once

#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/interop/flags/source.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {

/// [--from PROGRAM] [--arg N=value ...] [--env NAME=value ...]: how another program's script is read.
struct ForeignArguments {
  std::string from;
  std::vector<std::string> positional, environment;
};
void add_foreign_arguments(Command& command, ForeignArguments& arguments);
/// The same, taken apart. Throws ConfigError.
flags::SourceOptions source_options(const ForeignArguments& arguments);

/// RECIPE [--set group.key=value ...] [--verbose]: what every command that reads a recipe takes. RECIPE may be another
/// program's script.
struct RecipeArguments {
  std::string file;
  std::vector<std::string> sets;
  ForeignArguments foreign;
  bool verbose = false;  ///< list also what has no effect
};
void add_recipe_arguments(Command& command, RecipeArguments& arguments);
/// Only [--set group.key=value ...].
void add_set_arguments(Command& command, std::vector<std::string>& sets);

/// [--verbose]
void add_verbose_argument(Command& command, bool& verbose);
/// "21 options are accepted for compatibility and have no effect; --verbose lists them"
std::string without_effect_summary(std::size_t count, const std::string& what);

/// The recipe they name; what is wrong or to be noted, such as other spellings that were read, goes to `report`, and
/// what became of the flags of a script to `flags`.
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report,
                           std::vector<flags::ConvertedFlag>& flags);
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report);
/// Logs "note: ..." messages; those of flags that have no effect as one message, or all if `verbose`.
void log_notes(const std::vector<std::string>& notes, const std::vector<flags::ConvertedFlag>& flags, bool verbose);
/// Whether a note of a report only says why a flag is ignored.
bool tells_of_ignored_flag(const std::string& note, const std::vector<flags::ConvertedFlag>& flags);
/// The recipe they name; logs the notes. Throws ConfigError with all mistakes, a line each.
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context);

}  // namespace tessera::cli
