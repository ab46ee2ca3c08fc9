#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// How to read a source that is not a recipe of ours.
struct SourceOptions {
  std::string from;     ///< the flag table, "megatron@main"; empty: guessed
  ScriptInputs inputs;  ///< values for a script: positional arguments and environment
};

/// A description of a training run in any supported form, converted to a recipe.
struct Source {
  enum class Kind { recipe, script, model_args, yaml_arguments, nested, flags, other };
  Kind kind = Kind::recipe;
  options::Value tree;                  ///< our groups and options; origins name the source file and line
  std::string from;                     ///< the flag table that was used; empty: none
  std::string from_why;                 ///< why this table was chosen
  std::optional<Launch> launch;         ///< for a script: the launch
  std::vector<std::string> files = {};  ///< for a script: the script and the scripts that it sources
  std::size_t launches = 0;             ///< number of trainings that the script starts; the first is converted
  std::vector<ConvertedFlag> flags;     ///< one for each flag
  /// Flags that the script gives only in branches that were not taken: their conversion, and the condition. They are
  /// not in `tree`.
  std::vector<std::pair<ConvertedFlag, std::string>> elsewhere;
  std::vector<std::string> broken_files = {};  ///< what is wrong with files of settings that flags name
  std::vector<UnknownValue> unknowns;          ///< values that a script leaves to its caller
  /// Unknown conditions of a script that the run depends on. Their flags are not in `tree`; each condition is a
  /// problem.
  std::vector<Undecided> undecided;
};
std::string name_of(Source::Kind kind);

/// Reads `file`, which may be a recipe of ours (with its bases), a nested recipe, arguments in YAML, or a launch
/// script. Mistakes go to `report`; the conversion of each flag is also in `flags`.
Source read_source(const std::string& file, const SourceOptions& options, const options::Facts& facts,
                   const options::Mappings& mappings, options::Report& report);

/// Reads a list of flags.
Source read_flags(const std::vector<std::string>& argv, const SourceOptions& options, const options::Facts& facts,
                  const options::Mappings& mappings, options::Report& report);

/// Whether `read_source` reads `file` as something other than a recipe of ours.
bool is_foreign(const std::string& file, const options::Mappings& mappings);

/// Replaces unknown values of a script by ${NAME}: "$4" becomes ${ARG_4}, "$(date)" is named after its option.
void name_unknowns(options::Value& tree);
/// Replaces each ${NAME} by the environment variable; an unset variable is a problem in `report`.
void expand_unknowns(options::Value& tree, options::Report& report);

}  // namespace tessera::flags
