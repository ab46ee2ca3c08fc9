#pragma once

#include <cstdint>
#include <optional>

namespace tessera::training {

/// How long a rank waits for other ranks within a step. It is learned from the first steps: a short time-out finds a
/// hang early, but no fixed time suits both steps of milliseconds and steps of minutes. The slowest step does not
/// count, because it may be one in which the machine was paused.
class StepTimeOut {
 public:
  static constexpr int warm_up_steps = 2, learnt_steps = 10;
  static constexpr double least_seconds = 30, times_longest = 10;

  /// `given`: time-out in seconds that the user wants; absent: learn it. `longest`: time-out of operations outside of
  /// steps, in seconds; the upper limit.
  StepTimeOut(std::optional<double> given, double longest) : given_(given), longest_(longest) {}

  /// Adds a complete step: its duration and its number of samples.
  void add(double seconds, std::int64_t samples);
  /// Time-out in seconds for the next step, with `samples` samples: `times_longest` times the second slowest time per
  /// sample so far, at least `least_seconds`, at most `longest`; `longest` until enough steps are known.
  double seconds(std::int64_t samples) const;
  /// Whether the time-out is given or was learned from enough steps.
  bool known() const { return given_ || steps_ >= warm_up_steps + learnt_steps; }
  /// Time-out in seconds for an evaluation of `iterations` iterations with `samples` samples each: an iteration needs
  /// less time than a step, and ranks may wait for each other only at the end.
  double evaluation_seconds(std::int64_t samples, std::int64_t iterations) const;

 private:
  std::optional<double> given_;
  double longest_;
  int steps_ = 0;
  double slowest_ = 0, second_slowest_ = 0;  ///< longest times per sample, in seconds
};

}  // namespace tessera::training
