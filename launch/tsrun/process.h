#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/tsrun/connection.h"

namespace tessera::tsrun {

using Environment = std::map<std::string, std::string>;
/// The environment variables of this process.
Environment this_environment();

/// A program to start, in a process group of its own, and how.
struct Spawn {
  std::vector<std::string> words;  ///< path of the program and its arguments
  Environment environment;
  std::string folder;     ///< working directory; empty: that of this process
  int output = -1;        ///< descriptor for stdout and stderr; -1: those of this process
  int input = -1;         ///< descriptor for stdin; -1: /dev/null
  int kept = -1;          ///< descriptor that the program inherits under the same number; -1: none
  bool outlives = false;  ///< false: the system kills the program when this process dies
  /// Blocks worker::stop_signals in the program. For MPI's launcher and daemons: when all processes of a job are
  /// signalled, they would kill workers that are about to save.
  bool deaf = false;
  bool leaves_terminal = false;  ///< it and what it starts have no controlling terminal
  std::string
      host_name;  ///< host name that the program sees (in a UTS namespace of its own); empty: that of the system
  std::vector<int> cores;  ///< cores to which the program is bound; empty: those of this process
};

/// Starts a program and returns its process id. Throws Error with the system's reason if it cannot be started.
pid_t spawn(const Spawn& what);

/// Makes this process the parent of every descendant that loses its own parent (PR_SET_CHILD_SUBREAPER), so that
/// end_descendants() finds all of them.
void adopt_orphans();
/// Kills all descendants of this process, except the processes in `but` and their descendants, and waits until they are
/// gone, for at most 2 s.
void end_descendants(const std::set<pid_t>& but = {});

/// The descendants of this process that MPI started as workers, and the descendants of those.
std::vector<pid_t> workers_below();
/// Whether a process was started with an environment variable whose text "NAME=value" starts with `begins`. False if
/// its environment cannot be read.
bool has_variable(pid_t process, const std::string& begins);

/// Value of an environment variable with which a process was started; empty: it has none, or cannot be read.
std::string variable_of(pid_t process, const std::string& name);

/// The status of a process of this host according to the system.
struct ProcessStatus {
  char state = ' ';  ///< 'T': stopped; 'D': waits in the kernel and cannot be killed; 'R': runs or waits for a core
  std::uint64_t caught_signals = 0;  ///< bit (signal - 1) is set if the process handles the signal

  explicit ProcessStatus(pid_t process);
  bool catches(int signal) const { return (caught_signals >> (signal - 1) & 1) != 0; }
  /// Whether it is alive but cannot run at the moment: it is stopped, or waits for a core or in the kernel.
  bool is_held_up() const { return state == 'T' || state == 't' || state == 'R' || state == 'D'; }
};
/// Whether a process of this host runs the same program as this process.
bool runs_tsrun(pid_t process);

/// A silent process of this host that is alive but cannot run is lost only after this many times the time-out: a
/// debugger, a suspended machine or a lack of cores does not end a job.
inline constexpr int held_up_factor = 4;
/// The seconds of silence after which a process is lost. `process`: its process id on this host; 0: it is not on this
/// host.
double silence_allowed(double time_out, pid_t process);

/// Blocks `signals` in this process and returns a descriptor that becomes readable when one of them arrives (signalfd).
Descriptor catch_signals(const std::vector<int>& signals);
/// catch_signals() of SIGCHLD and of worker::obeyed_stop_signals(). SIGCHLD gets its default action: a process whose
/// parent ignored it could not learn how its children end.
Descriptor catch_stop_signals();
/// Returns the signals that have arrived since the last call, in no particular order; does not wait.
std::vector<int> caught(const Descriptor& signals);

/// Text for a signal, for example "signal 9 (SIGKILL)".
std::string signal_words(int signal);

/// Returns the full path of a program: `name` itself if it contains a '/', else the first match in PATH of
/// `environment` or beside tsrun. Throws ConfigError if there is none or it is not executable.
std::string find_program(const std::string& name, const Environment& environment);
/// Path of the executable of this process.
std::string own_path();

}  // namespace tessera::tsrun
