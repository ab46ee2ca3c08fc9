#pragma once

#include <deque>
#include <optional>
#include <string>

#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {

/// Decides after each failed start whether the workers are started again.
class Restarts {
 public:
  /// Exit codes of tsrun when it starts a program no more that keeps its state in memory.
  static constexpr int used_up = 20, poison_step = 21;
  /// Restarts in a row, for a program that keeps its state in memory, if --max_restarts does not say otherwise.
  static constexpr int of_held_state = 3;

  /// `most`: --max_restarts, `window`: --restart_window, if given. `held`: state that is in memory before the first
  /// start; -1: none.
  explicit Restarts(std::optional<int> most, int held = -1, std::optional<int> window = std::nullopt)
      : most_(most), window_(window), held_(held), carried_(held) {}

  enum class Decision {
    restart,
    give_up,  ///< there is no restart left
    poison    ///< the same failure at the same step twice: a restart would only repeat it
  };
  /// To be asked once after each failed start. Restarts count from the last one after which the program completed a
  /// step; those of a program without state in memory count from the first. With a window those of the last `window`
  /// seconds also count, whatever was completed between them. `now`: seconds of a clock that never jumps.
  Decision decide(const Outcome& outcome, double now);
  /// To be asked after each start, before decide(). A start that ended before any worker told what it holds leaves the
  /// state of the start before it: then outcome.held is that.
  void carry_held(Outcome& outcome);

  int done() const { return done_; }             ///< restarts that count
  bool too_often() const { return too_often_; }  ///< only the window made it give up
  int allowed() const { return allowed_; }       ///< so many may

 private:
  std::optional<int> most_;
  std::optional<int> window_;
  int in_row_ = 0, done_ = 0, allowed_ = 0;
  std::deque<double> times_;  ///< of the restarts within the window
  bool too_often_ = false;
  int held_ = -1;     ///< of the last failure
  int carried_ = -1;  ///< of the last start that told
  std::string cause_;
};

}  // namespace tessera::tsrun
