#pragma once

#include <signal.h>

namespace tessera {

/// Turns SIGTERM and SIGINT into a polite request while it lives. The first asks: the loop looks at
/// `asked` between two steps, saves and ends with exit code 0. The second ends the process at once with exit
/// code 128 + its number. When destroyed, the handlers from before come back.
///
/// Signals belong to the process, so there is at most one of these at a time (BugError). It keeps one static
/// atomic integer, the only thing that a signal handler may touch.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  bool asked() const { return signal() != 0; }
  int signal() const;  ///< the number of the first signal; 0 while there was none
  const char* name() const { return name_of(signal()); }
  static const char* name_of(int signal);  ///< "SIGTERM", "SIGINT", "" for none

 private:
  struct sigaction before_[2];  // of SIGTERM and SIGINT
};

}  // namespace tessera
