#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "framework/log/log.h"

namespace tessera::cli {

/// Progress of long work: on a terminal in a line that is rewritten and taken away at the end; elsewhere, if asked for,
/// one announcement as soon as the work is known to take long.
class Meter {
 public:
  struct Options {
    std::string announcement = {};  ///< elsewhere than on a terminal; empty: nothing is told there
    int console = 2;                ///< file descriptor
    bool terminal = log::StatusLine::suits(console);
    std::function<double()> clock = {};  ///< seconds since any moment; empty: the real one
  };
  explicit Meter(std::string what) : Meter(std::move(what), Options{}) {}
  Meter(std::string what, Options options);
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  /// `done` of `all` units of the work are done.
  void operator()(std::int64_t done, std::int64_t all);
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
