#pragma once

namespace tessera {

/// Measures for how long a process has waited for others, in seconds. Time in which this process itself was late does
/// not count: it was stopped, its machine was paused, or it got no core. The others were then mostly stopped, too, or
/// had sent what this process has not read yet, so a time-out by this clock blames nobody for such a time. For one
/// thread.
class WatchClock {
 public:
  /// Longest time between two calls that counts, in seconds. A loop that waits for others calls more often.
  static constexpr double longest_gap = 1;
  /// Returns the seconds of a monotonic clock.
  using Source = double (*)();

  /// The clock starts with the first call of seconds() or waited().
  explicit WatchClock(Source source = steady_seconds) : source_(source) {}
  /// Time of this clock, which is that of the source at the start. Of the time since the last call, at most
  /// `longest_gap` counts.
  double seconds() { return advance(longest_gap); }
  /// Call it after a wait (poll, sleep) that should have ended after at most `longest` seconds: no more counts.
  void waited(double longest) { advance(longest); }
  /// Seconds of the system's monotonic clock.
  static double steady_seconds();

 private:
  double advance(double most);

  Source source_;
  bool started_ = false;
  double last_ = 0;  ///< time of the source at the last call
  double time_ = 0;  ///< time of this clock
};

}  // namespace tessera
