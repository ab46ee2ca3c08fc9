#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/interop/shell/script.h"

// Bash scripts, read and never run: the commands that a script comes to, with the words that Bash would give them.

namespace tessera::shell {

/// What the caller knows of the world a script runs in. Arguments that are not here are unknown, unless the last one
/// here is empty: then the script is called with those before it and no more.
struct Inputs {
  std::map<int, std::string> arguments;            ///< $1, $2, ...
  std::map<std::string, std::string> environment;  ///< nobody knows the others
};

/// A program that the script starts. Words hold marks (marks.h).
struct StartedProgram {
  std::vector<std::string> words;
  std::vector<std::pair<std::string, std::string>> environment;  ///< what is exported by then, sorted by name
  ScriptPosition at;
};

/// A condition that the script came to.
struct Decision {
  ScriptPosition at;
  int site = 0;
  std::string condition;  ///< as written
  int branches = 2;
  int taken = 0;                   ///< -1: now this one, now that one
  bool open = false;               ///< nothing that is known decides it
  std::vector<std::string> needs;  ///< what would: "$2", "${NAME}", "$(date)", "nvidia-smi -L", "-f data/x"
  std::vector<int> possible;       ///< of an open one: the branches that it may take
  bool operator<(const Decision& other) const;  ///< by place and site: which condition it is
};

/// A variable that nobody gives was taken for unset.
struct Assumed {
  std::string name;
  std::string instead;  ///< of ${NAME:-words}: the words
  ScriptPosition at;
};

/// What a script comes to.
struct Reading {
  std::vector<std::string> files;              ///< those that were read; ScriptPosition::file counts them
  std::vector<StartedProgram> runs;            ///< programs, in order; not those in $(...)
  std::vector<Decision> decisions;             ///< each once
  std::vector<Assumed> assumed;                ///< each name once
  std::vector<Remark> remarks;                 ///< what was read as meant
  std::map<std::string, std::string> written;  ///< files that the script writes and whose text is known
  std::string error;                           ///< why the reading stopped before the end
  ScriptPosition error_at;
  long steps = 0;  ///< how much work it was
};

/// Conditions that are to fall as they are told here: condition -> branch. One that was open falls so only where it is
/// open, any other whatever is known.
using Choices = std::map<Decision, int>;

/// The text of a script: without byte order mark, with Unix line ends, without the bytes of marks. Throws ConfigError
/// when it cannot be read, is binary or is larger than 4 MiB.
std::string read_script_text(const std::string& file);

/// Follow a script through the one way that it takes; where a condition is not known, the one in which it holds, unless
/// the script would end there. `steps` bounds the work: one step is a command or an expansion, about a microsecond.
/// Throws ConfigError when the script itself cannot be read; what goes wrong on the way is `error`.
Reading follow_script(const std::string& file, const Inputs& inputs, const Choices& choices, long steps);
/// The same for a text that has the name `file`.
Reading follow_text(const std::string& text, const std::string& file, const Inputs& inputs, const Choices& choices,
                    long steps);

}  // namespace tessera::shell
