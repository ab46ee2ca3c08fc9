#pragma once

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::training {

/// Handles the signals of worker::obeyed_stop_signals() as long as it exists. The first signal is a request: the
/// training loop checks asked() between steps, saves a checkpoint and ends with exit code 0. After it, SIGINT, SIGTERM
/// and SIGQUIT (worker::ends_at_once) end the process at once with exit code 128 + their number; the others do nothing.
/// The destructor restores the previous handlers, unless the run has ended in order (keep_until_exit).
///
/// Signal handlers belong to the process, so only one object may exist at a time (else BugError). The state is one
/// static atomic integer, which a signal handler may access.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool asked() const { return signal() != 0; }
  int signal() const;  ///< number of the first signal; 0: there was none

  /// The run has ended in order, and the process will end with `exit_code`. A request that was sent before may arrive
  /// now, because launchers and schedulers signal each process of a job by itself: it must not make a failure of a
  /// success. So the handlers stay until the process ends. The next signal does nothing; after it, one that ends the
  /// process at once does so with `exit_code`.
  void keep_until_exit(int exit_code);

 private:
  std::vector<std::pair<int, struct sigaction>> before_;  // each handled signal with its previous handler
};

}  // namespace tessera::training
