#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

// The launches of another program's training: those that a Bash script would start (the script is evaluated, not
// executed), and the MODEL_ARGS files of Megatron-LM's functional tests.

namespace tessera::flags {

/// A flag that the script gives only in a branch that was not taken.
struct FlagElsewhere {
  GivenFlag given;
  std::string condition;  ///< "[ $AC = sel ], line 214"
};

/// One start of a training program.
struct Launch {
  std::string launcher;  ///< "torchrun", "python -m torch.distributed.launch", "deepspeed", "python"; the words
                         ///< before it, "srun", with a blank between
  std::vector<GivenFlag> options;  ///< options of the launcher
  std::string program;             ///< "pretrain_gpt.py", as written
  std::vector<GivenFlag> flags;    ///< flags of the program, in order; a flag given twice is listed twice
  /// Words that belong to no flag, and variables that are never set: "$@", "${EXTRA_ARGS}".
  std::vector<std::string> stray;
  /// Exported before the launch, with the last value; secrets are not hidden.
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<FlagElsewhere> elsewhere;  ///< flags of branches not taken that are not in `flags`, each once
  options::Origin at;
};

/// A value that only the caller, the environment or another program knows.
struct UnknownValue {
  std::string name;                  ///< as written in values: "${NAME}", "$4", "${12}", "$(date +%F)"
  std::vector<std::string> used_by;  ///< flags and launcher options whose values contain it
  options::Origin at;                ///< position of the first of them
};

/// A condition of a script that the known values do not decide, although the launch depends on it.
struct Undecided {
  std::string condition;  ///< as written: "[ $MODEL_SIZE = 0.5B ]", "${2:-8}", "for x in $LIST"
  options::Origin at;
  std::vector<std::string> needs;  ///< values that would decide it: "$2", "${NAME}", "nvidia-smi -L", "-f data/x"
  std::vector<std::string> flags;  ///< flags of the program whose presence or value depends on it
  std::vector<std::string> launcher_options;  ///< options of the launcher whose presence or value depends on it
  std::vector<GivenFlag> otherwise;           ///< `flags` as given in branches that were not taken
  bool program = false;                       ///< the started program depends on it
  bool followed = true;                       ///< false: there are too many conditions to find out what depends on it

  /// Whether the started run depends on it.
  bool decides_run() const { return !flags.empty() || program || !followed; }
};
/// The error message, "'[ $MODEL_SIZE = 0.5B ]' decides --num-layers, but $2 is not known", and the advice.
std::string text_of(const Undecided& undecided);
std::string remedy_for(const Undecided& undecided);
/// The command-line option that sets an unknown value: "--arg 2=VALUE", "--env NAME=VALUE"; empty if none can.
std::string answer_to(const std::string& unknown);

/// The values that the caller gives for a script: `--arg 1=dsw --env WORLD_SIZE=8`. An empty last argument means that
/// the script has only the arguments before it.
struct ScriptInputs {
  std::map<int, std::string> arguments;            ///< by number, from 1
  std::map<std::string, std::string> environment;  ///< this process's own environment is not used
};

struct LaunchReading {
  std::vector<Launch> launches;        ///< in the order of the script
  std::vector<UnknownValue> unknowns;  ///< unknown values of all launches
  std::vector<Undecided> undecided;    ///< all undecided conditions that the first launch depends on
  std::vector<std::string> read = {};  ///< the script itself and the scripts that it sources
  /// Name -> text of files that the script writes with here-documents and echo.
  std::map<std::string, std::string> files;
};

/// Reads a launch script (*.sh, or any Bash text) or a MODEL_ARGS file (*.yaml, *.yml), and returns the trainings that
/// it starts, with their flags. Nothing is executed. The time is bounded: an endless script ends with an error.
///
/// An unknown value keeps the words it was written with, "${NAME}", "$4", "$(date)", inside the known text:
/// "${26}/checkpoint". At an unknown condition, each branch is evaluated: if the first launch differs, the condition is
/// `undecided`, and launcher options that depend on it are dropped; otherwise it is irrelevant. An environment variable
/// that is not given counts as unset for ${NAME:-default} and for tests whether it is set, because the script handles
/// that case; any other test of it is unknown. Flags of branches that were not taken are in `elsewhere`.
///
/// Notes report variables that count as unset, text that was interpreted as intended although Bash reads it
/// differently, and flags given twice. Problems report a file that cannot be read or is binary, an unclosed quote, an
/// endless loop, a script that launches no training.
LaunchReading read_launches(const std::string& file, const ScriptInputs& inputs, const options::Mappings& mappings,
                            options::Report& report);

/// Whether `tree`, a YAML file as read, is a MODEL_ARGS file.
bool is_model_args(const options::Value& tree);

}  // namespace tessera::flags
