#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/launch.h"

namespace tessera::flags {

/// How something that is no recipe of ours is read.
struct SourceOptions {
  std::string from;     ///< the flag table, "megatron@main"; empty: guessed
  ScriptInputs inputs;  ///< what a script cannot know: positional arguments and environment
};

/// Something that says how to train, as a recipe.
struct Source {
  enum class Kind { recipe, script, model_args, yaml_arguments, nested, flags };
  Kind kind = Kind::recipe;
  options::Value tree;                  ///< our groups and options; origins name the file and line that said them
  std::string from;                     ///< the flag table that was read with; empty: none was
  std::string from_why;                 ///< what showed that
  std::optional<Launch> launch;         ///< of a script: what it starts
  std::vector<std::string> files = {};  ///< of a script: itself, and those that it reads
  std::size_t launches = 0;             ///< how many trainings the script starts; the first is read
  std::vector<ConvertedFlag> flags;     ///< one for each flag
  /// Flags that the script gives only where a condition falls otherwise than it was read: what would become of them,
  /// and that condition. They are not in `tree`.
  std::vector<std::pair<ConvertedFlag, std::string>> elsewhere;
  std::vector<UnknownValue> unknowns;  ///< what a script leaves to its caller
  /// Conditions of a script that the run depends on and that are not known. Their flags are not in `tree`; each is a
  /// problem.
  std::vector<Undecided> undecided;
  /// Where Megatron-LM core_v0.12.1, when it is what `from` names, would have stopped itself, whatever became of the
  /// flags: rules of convert/megatron_rules.h. Rules about the number of processes are not asked.
  std::vector<options::Finding> stops;
};
std::string name_of(Source::Kind kind);

/// Whatever `file` is: a recipe of ours (with its bases), a nested one, arguments in YAML, a launch script. What is
/// wrong with it goes to `report`; of flags, what became of them is in `flags` too.
Source read_source(const std::string& file, const SourceOptions& options, const options::Facts& facts,
                   const options::Mappings& mappings, options::Report& report);

/// The same of a list of flags.
Source read_flags(const std::vector<std::string>& argv, const SourceOptions& options, const options::Facts& facts,
                  const options::Mappings& mappings, options::Report& report);

/// Whether `file` is read by `read_source` in another way than as a recipe of ours.
bool is_foreign(const std::string& file, const options::Mappings& mappings);

/// What could not be known of a script becomes ${NAME}: "$4" is ${ARG_4}, "$(date)" is named after its option.
void name_unknowns(options::Value& tree);
/// Each ${NAME} of a foreign source by what the environment says; one that says nothing is a problem.
void expand_unknowns(options::Value& tree, options::Report& report);

}  // namespace tessera::flags
