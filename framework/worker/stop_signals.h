#pragma once

#include <array>
#include <csignal>
#include <string>
#include <vector>

namespace tessera::worker {

/// Every signal by which a terminal, a user or a scheduler asks a run to stop:
///
///   SIGINT, SIGQUIT    Ctrl-C and Ctrl-\ in the terminal
///   SIGTERM            kill, systemd, container engines, every scheduler
///   SIGHUP             the terminal was closed, or its connection was lost
///   SIGUSR1, SIGUSR2   warning before the time limit: Slurm --signal, Grid Engine -notify, LSF
///   SIGXCPU            the soft limit of processor time (ulimit -t); the system repeats it every second
inline constexpr std::array stop_signals = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Whether this signal, when it follows another request to stop, ends the run at once without saving. The others are
/// warnings, which senders repeat: for one closed terminal the system and the shell each send a SIGHUP.
constexpr bool ends_at_once(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGQUIT; }

/// The signals in stop_signals that this process reacts to: all, except warnings that are ignored when this is called,
/// because whoever started the process asked for that (nohup, trap '' USR1). SIGINT and SIGQUIT are not excepted,
/// because a shell without job control ignores them in every background process.
std::vector<int> obeyed_stop_signals();

/// "SIGTERM"; "signal 40" if it has no name.
std::string name_of_signal(int signal);

}  // namespace tessera::worker
