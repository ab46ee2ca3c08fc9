#pragma once

#include <signal.h>

namespace tessera::training {

/// Handles SIGTERM and SIGINT as long as it exists. The first signal is a request: the training loop checks asked()
/// between steps, saves a checkpoint and ends with exit code 0. The second signal ends the process at once with exit
/// code 128 + its number. The destructor restores the previous handlers.
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
  const char* name() const { return name_of(signal()); }
  static const char* name_of(int signal);  ///< "SIGTERM", "SIGINT", "" for none

 private:
  struct sigaction before_[2];  // of SIGTERM and SIGINT
};

}  // namespace tessera::training
