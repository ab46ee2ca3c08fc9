#pragma once

#include <cstdint>
#include <optional>

namespace tessera::training {

/// How long a rank waits for others within a step: learnt from the first steps, because a hang is found the sooner the
/// shorter it is, and no fixed time suits steps of milliseconds and of minutes.
class StepTimeOut {
 public:
  static constexpr int warm_up_steps = 2, learnt_steps = 10;
  static constexpr double least_seconds = 30, times_longest = 10;

  /// `given`: seconds that the user wants; absent: learnt. `longest`: that of operations outside of steps, in seconds.
  StepTimeOut(std::optional<double> given, double longest) : given_(given), longest_(longest) {}

  /// A step of so many samples is complete.
  void add(double seconds, std::int64_t samples);
  /// For the next step, of so many samples: ten times as long as the slowest step per sample so far, at least 30 s;
  /// `longest` until enough steps are known, and at most.
  double seconds(std::int64_t samples) const;
  /// Whether these are known: given, or learnt from enough steps.
  bool known() const { return given_ || steps_ >= warm_up_steps + learnt_steps; }
  /// For an evaluation of so many iterations of so many samples: an iteration is a part of what a step is, and ranks
  /// may wait for each other only at the end.
  double evaluation_seconds(std::int64_t samples, std::int64_t iterations) const;

 private:
  std::optional<double> given_;
  double longest_;
  int steps_ = 0;
  double slowest_ = 0;  ///< seconds per sample
};

}  // namespace tessera::training
