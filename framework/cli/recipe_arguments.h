#pragma once

#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/interop/flags/source.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {

/// [--from PROGRAM] [--arg N=value ...] [--env NAME=value ...]: how to read another program's script.
struct ForeignArguments {
  std::string from;                                  ///< the program; empty: detected
  std::vector<std::string> positional, environment;  ///< "N=value"; "NAME=value"
};
void add_foreign_arguments(Command& command, ForeignArguments& arguments);
/// The parsed arguments. Throws ConfigError if one is malformed.
flags::SourceOptions source_options(const ForeignArguments& arguments);

/// RECIPE [--set group.key=value ...] [--verbose]: the arguments of every command that reads a recipe. RECIPE may be
/// another program's script.
struct RecipeArguments {
  std::string file;
  std::vector<std::string> sets;
  ForeignArguments foreign;
  bool verbose = false;  ///< also list options without effect
};
void add_recipe_arguments(Command& command, RecipeArguments& arguments);
/// Only [--set group.key=value ...].
void add_set_arguments(Command& command, std::vector<std::string>& sets);
/// The layout of ranks in the words of the converters of Megatron-LM and MindSpeed-LLM, --target-tensor-parallel-size N
/// and others, as settings "group.key=value".
void add_target_arguments(Command& command, std::vector<std::string>& sets);

/// [--ignore-key NAME ...]: the argument of every command that reads a folder of Hugging Face Transformers. The
/// command passes `keys` to CommandContext::ignore_keys.
void add_ignore_key_argument(Command& command, std::vector<std::string>& keys);

/// [--verbose]
void add_verbose_argument(Command& command, bool& verbose);
/// "21 options are accepted for compatibility and have no effect; --verbose lists them"
std::string without_effect_summary(std::size_t count, const std::string& what);

/// Gives `source`, if its model is only named by a folder of Hugging Face Transformers that it starts from, the
/// model_config and the tokenizer of the folder. A folder without config.json refuses the flag that names it.
void take_model_of_folder(flags::Source& source, const CommandContext& context, options::Report& report);

/// Reads the recipe that `arguments` name. Mistakes and notes, such as aliases that were read, go to `report`;
/// what was read of a script to `source`, which otherwise stays empty.
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report,
                           flags::Source& source);
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, options::Report& report);
/// The problems of `report`; those of rules name the flags of the script that `source` is, if it is one.
options::Report problems_in_flags(const options::Report& report, const flags::Source& source,
                                  const CommandContext& context);
/// Reads the recipe that `arguments` name, or, if they name a folder, the recipe of that run or checkpoint of any
/// format. Sets `arguments.file` to the file that was read. Throws ConfigError, also if a folder is neither.
recipe::Recipe read_recipe_or_run(RecipeArguments& arguments, const CommandContext& context, options::Report& report);
/// Logs `notes` as "note: ..." messages. Notes about flags without effect are combined into one message unless
/// `verbose`.
void log_notes(const std::vector<std::string>& notes, const std::vector<flags::ConvertedFlag>& flags, bool verbose);
/// Whether `note` of a report only says why a flag is ignored.
bool tells_of_ignored_flag(const std::string& note, const std::vector<flags::ConvertedFlag>& flags);
/// Reads the recipe that `arguments` name and logs the notes. Throws ConfigError with all mistakes, one per line.
recipe::Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context);

}  // namespace tessera::cli
