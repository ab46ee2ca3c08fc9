#pragma once

#include <sys/types.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/tsrun/connection.h"

namespace tessera::tsrun {

using Environment = std::map<std::string, std::string>;
Environment this_environment();

/// A program to start, and what it gets.
struct Spawn {
  std::vector<std::string> words;  ///< the program's path and its arguments
  Environment environment;
  std::string folder;     ///< to work in; empty: this one
  int output = -1;        ///< stdout and stderr; -1: ours. stdin is /dev/null
  int input = -1;         ///< stdin when there is one
  int kept = -1;          ///< a descriptor that it inherits under the same number
  bool outlives = false;  ///< it does not die with this process
  /// Deaf to requests to end, such as TERM and INT, also from whoever signals all processes of a job: MPI's launcher
  /// and daemons would kill workers that are about to save.
  bool deaf = false;
  bool session = false;    ///< in a session of its own; else in a process group of its own
  std::string host_name;   ///< it believes to be on a host of this name; empty: the host's own
  std::vector<int> cores;  ///< bound to them; empty: as this process
};

/// Start it. It dies when this process dies, unless it outlives that. Throws Error with the system's reason when it
/// cannot be run.
pid_t spawn(const Spawn& what);

/// From now on whoever loses its parent below this process becomes our child, so that nobody gets away.
void adopt_orphans();
/// Kill everything below this process but these and what they started, and wait until it is gone, for at most two
/// seconds.
void end_descendants(const std::set<pid_t>& but = {});

/// The processes below this one that MPI started as workers, and what these started.
std::vector<pid_t> workers_below();
/// Whether a process was started with that "NAME=value", or with any variable whose words begin so.
bool has_variable(pid_t process, const std::string& begins);

/// Delete a folder with all it holds, though others may delete it, too. Gives up after two seconds.
void delete_folder(const std::string& path);

/// The descriptor that tells which of these signals came; they no longer do what they did before.
Descriptor catch_signals(const std::vector<int>& signals);
/// The signals that came since, in no order.
std::vector<int> caught(const Descriptor& signals);

/// "signal 9 (killed)", "exit code 3".
std::string signal_words(int signal);

/// The full path of a program: as given when it has a '/', else in PATH or beside tsrun. Throws ConfigError.
std::string find_program(const std::string& name, const Environment& environment);
/// The path of this program.
std::string own_path();

}  // namespace tessera::tsrun
