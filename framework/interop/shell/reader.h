#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/shell/script.h"

// Evaluates Bash scripts without executing them: determines the commands that a script would run, with their words as
// Bash would expand them.

namespace tessera::shell {

/// What the caller knows about the environment of a script. Arguments that are not given are unknown, unless the last
/// given one is empty: then the script has only the arguments before it.
struct Inputs {
  std::map<int, std::string> arguments;            ///< $1, $2, ...
  std::map<std::string, std::string> environment;  ///< other variables are unknown
};

/// A program that the script starts. Its words contain marks (marks.h).
struct StartedProgram {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  ///< variables exported at that time, sorted by name
  ScriptPosition at;
};

/// A condition that the evaluation reached.
struct Decision {
  ScriptPosition at;
  int site = 0;           ///< number of the condition in its text
  std::string condition;  ///< as written
  int branches = 2;
  int taken = 0;      ///< branch taken; -1: different branches at different times
  bool open = false;  ///< the known values do not decide it
  /// Values that would decide it: "$2", "${NAME}", "$(date)", "nvidia-smi -L", "-f data/x".
  std::vector<std::string> needs;
  std::vector<int> possible;                    ///< for an open condition: the branches that it may take
  bool operator<(const Decision& other) const;  ///< by place and site, which identify the condition
};

/// A variable without a known value that was assumed to be unset.
struct Assumed {
  std::string name;
  std::string instead;  ///< for ${NAME:-words}: the words
  ScriptPosition at;
};

/// The result of evaluating a script.
struct Reading {
  std::vector<std::string> files;    ///< all files that were read; ScriptPosition::file is an index into this list
  std::vector<StartedProgram> runs;  ///< started programs, in order, without those in $(...)
  std::vector<Decision> decisions;   ///< each condition once
  std::vector<Assumed> assumed;      ///< each variable once
  std::vector<Remark> remarks;       ///< text that was interpreted as intended, not as Bash reads it
  std::map<std::string, std::string> written;  ///< path -> text of files that the script writes, if known
  std::string error;                           ///< why the evaluation stopped before the end; empty: it did not
  ScriptPosition error_at;
  long steps = 0;  ///< amount of work, see follow_script
};

/// Predetermined branches: condition -> branch. For a condition that was open, this applies only while it is open; for
/// others, always.
using Choices = std::map<Decision, int>;

/// The text of a script, without byte order mark, with Unix line ends, and with the bytes of marks replaced. Throws
/// ConfigError if the file cannot be read, is binary or is larger than 4 MiB.
std::string read_script_text(const std::string& file);

/// Evaluates a script along one path. At an unknown condition it takes the branch in which the condition holds, unless
/// the script would end there. `steps` limits the work: one step is a command or an expansion, about a microsecond.
/// Throws ConfigError if the script itself cannot be read; later errors are in Reading::error.
Reading follow_script(const std::string& file, const Inputs& inputs, const Choices& choices, long steps);
/// Evaluates `text`, the content of a script named `file`.
Reading follow_text(const std::string& text, const std::string& file, const Inputs& inputs, const Choices& choices,
                    long steps);

}  // namespace tessera::shell
