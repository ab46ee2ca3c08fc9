#pragma once

#include <deque>
#include <optional>
#include <string>

#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {

/// Decides after each failed start whether the workers are started again.
class Restarts {
 public:
  /// Exit codes of tsrun for a program that keeps its state in memory: no restart is left; the same failure repeats at
  /// the same step.
  static constexpr int used_up = 20, poison_step = 21;
  /// Default of --max_restarts for a program that keeps its state in memory.
  static constexpr int of_held_state = 3;

  /// `most`: --max_restarts; absent: the default. `held`: last iteration whose state is in memory before the first
  /// start; -1: none. `window`: --restart_window, in seconds; absent: none.
  explicit Restarts(std::optional<int> most, int held = -1, std::optional<int> window = std::nullopt)
      : most_(most), window_(window), held_(held), carried_(held) {}

  enum class Decision {
    restart,
    give_up,  ///< no restart is left, or a restart cannot help
    poison    ///< the same failure at the same step twice: a restart would repeat it
  };
  /// Decides after a failed start; call it exactly once for each. Counted are the restarts since the program last
  /// completed a step, or all restarts if it keeps no state in memory. With a window, restarts of the last `window`
  /// seconds count even if steps were completed between them. `now`: seconds of a monotonic clock.
  Decision decide(const Outcome& outcome, double now);
  /// Call it after each start, before decide(). If a start ended before any worker reported which state it holds, the
  /// state of the start before is still valid: sets `outcome.held` to it.
  void carry_held(Outcome& outcome);

  int done() const { return done_; }             ///< number of restarts that count
  bool too_often() const { return too_often_; }  ///< give_up was decided only because of the window
  int allowed() const { return allowed_; }       ///< maximum number of restarts

 private:
  std::optional<int> most_;
  std::optional<int> window_;
  int in_row_ = 0, done_ = 0, allowed_ = 0;
  std::deque<double> times_;  ///< times of the restarts within the window
  bool too_often_ = false;
  int held_ = -1;     ///< Outcome::held at the last failure
  int carried_ = -1;  ///< Outcome::held of the last start
  std::string cause_;
};

}  // namespace tessera::tsrun
