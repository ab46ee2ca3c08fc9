#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/log/log.h"

namespace tessera::cli {

/// Shows the progress of long work. On a terminal: one line that is rewritten, and removed at the end. Elsewhere: if an
/// announcement is given, it is logged once, as soon as the work is known to take long.
class Meter {
 public:
  struct Options {
    std::string announcement = {};  ///< shown if the console is not a terminal; empty: nothing is shown there
    int console = 2;                ///< file descriptor
    bool terminal = log::StatusLine::suits(console);
    /// Time in seconds since an arbitrary moment; empty: the system's monotonic clock.
    std::function<double()> clock = {};
  };
  /// `what` names the work.
  explicit Meter(std::string what) : Meter(std::move(what), Options{}) {}
  Meter(std::string what, Options options);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// Reports that `done` of `all` units of the work are done.
  void operator()(std::int64_t done, std::int64_t all);
  /// Seconds since construction.
  double seconds() const { return o_.clock() - begin_; }

 private:
  void announce(double seconds);

  std::string what_;
  Options o_;
  double begin_, next_;
  std::optional<log::StatusLine> line_;  // on a terminal
  bool announced_ = false;
};

}  // namespace tessera::cli
