#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/mappings.h"
#include "framework/options/report.h"

// What another program's training is started with: the launches that a Bash script comes to, read and never run, and
// the MODEL_ARGS files of Megatron's functional tests.

namespace tessera::flags {

/// A flag that the script gives only where one of its conditions falls otherwise than it was read.
struct FlagElsewhere {
  GivenFlag given;
  std::string condition;  ///< "[ $AC = sel ], line 214"
};

/// One start of a training program.
struct Launch {
  std::string launcher;  ///< "torchrun", "python -m torch.distributed.launch", "deepspeed", "python"; the words
                         ///< before it, "srun", with a blank between
  std::vector<GivenFlag> options;  ///< the launcher's own
  std::string program;             ///< "pretrain_gpt.py", as written
  std::vector<GivenFlag> flags;    ///< the program's, in their order; a flag given twice stands twice
  std::vector<std::string> stray;  ///< words of no flag, and bundles that are set nowhere: "$@", "${EXTRA_ARGS}"
  std::vector<std::pair<std::string, std::string>> environment;  ///< exported before, last value; no secrets are hidden
  std::vector<FlagElsewhere> elsewhere;  ///< flags of branches not taken that are not among `flags`, each once
  options::Origin at;
};

/// Something that only the caller, the environment or another program knows.
struct UnknownValue {
  std::string name;                  ///< as it stands in values: "${NAME}", "$4", "${12}", "$(date +%F)"
  std::vector<std::string> used_by;  ///< the flags and launcher options whose values have it
  options::Origin at;                ///< of the first of them
};

/// A condition of a script that nothing decides which is known, though the launch depends on it.
struct Undecided {
  std::string condition;  ///< as written: "[ $MODEL_SIZE = 0.5B ]", "${2:-8}", "for x in $LIST"
  options::Origin at;
  std::vector<std::string> needs;  ///< what would decide it: "$2", "${NAME}", "nvidia-smi -L", "-f data/x"
  std::vector<std::string> flags;  ///< the program's flags that it decides, whether given or with which value
  std::vector<std::string> launcher_options;  ///< the same of the launcher's options
  std::vector<GivenFlag> otherwise;           ///< how `flags` stand in branches that were not read
  bool program = false;                       ///< it decides which program is started
  bool followed = true;                       ///< false: there are too many conditions to tell what it decides

  /// Whether the run that is started depends on it.
  bool decides_run() const { return !flags.empty() || program || !followed; }
};
/// "'[ $MODEL_SIZE = 0.5B ]' decides --num-layers, but $2 is not known", and what to do.
std::string text_of(const Undecided& undecided);
std::string remedy_for(const Undecided& undecided);
/// The option that gives an unknown: "--arg 2=VALUE", "--env NAME=VALUE"; empty when none can.
std::string answer_to(const std::string& unknown);

/// What the caller tells of a script: `--arg 1=dsw --env WORLD_SIZE=8`. An empty last argument says that the script is
/// called with those before it and no more.
struct ScriptInputs {
  std::map<int, std::string> arguments;            ///< by number, from 1
  std::map<std::string, std::string> environment;  ///< nothing of this process's environment is looked at
};

struct LaunchReading {
  std::vector<Launch> launches;              ///< in the order in which the script comes to them
  std::vector<UnknownValue> unknowns;        ///< of all launches
  std::vector<Undecided> undecided;          ///< what the first launch depends on; all there are
  std::vector<std::string> read = {};        ///< the script itself and those that it reads
  std::map<std::string, std::string> files;  ///< what the script writes, here-documents and echo, by the name it uses
};

/// Read a launch script (*.sh, any text that is Bash) or a MODEL_ARGS file (*.yaml, *.yml) and say which trainings it
/// starts with which flags. Nothing is run, and bounded in time: a script that continues for ever ends with a message.
///
/// A value that cannot be known keeps the words it was written with, "${NAME}", "$4", "$(date)", inside of what is
/// known: "${26}/checkpoint". Where a condition cannot be known, each of its branches is followed: if the first launch
/// differs, the condition is `undecided`, and launcher options that it decides are left out; else it does not matter.
/// A variable of the environment that is not given counts as unset for ${NAME:-default} and for tests whether it is
/// set, as the script has an answer for that; any other test of it is not known. What branches that were not taken
/// would give stands in `elsewhere`.
///
/// Notes tell of variables that count as unset, of what was read as meant though Bash reads it otherwise, and of a flag
/// given twice; problems: a file that cannot be read or is binary, an unclosed quote, an endless loop, a script that
/// launches no training.
LaunchReading read_launches(const std::string& file, const ScriptInputs& inputs, const options::Mappings& mappings,
                            options::Report& report);

/// Whether `tree`, a YAML file as read, is a MODEL_ARGS file.
bool is_model_args(const options::Value& tree);

}  // namespace tessera::flags
