#include "launch/tsrun/restarts.h"

#include <algorithm>

#include "framework/worker/launch_link.h"

namespace tessera::tsrun {

void Restarts::carry_held(Outcome& outcome) {
  if (outcome.held < 0) outcome.held = carried_;
  carried_ = outcome.held;
}

Restarts::Decision Restarts::decide(const Outcome& outcome, double now) {
  const bool holds = outcome.held >= 0, went_on = outcome.held > held_;
  allowed_ = most_.value_or(holds ? of_held_state : 0);
  if (outcome.refused || outcome.code == worker::nothing_saved) return Decision::give_up;
  if (holds && !went_on && !outcome.cause.empty() && outcome.cause == cause_) return Decision::poison;
  if (holds && went_on) in_row_ = 0;
  held_ = outcome.held;
  cause_ = outcome.cause;
  while (!times_.empty() && now - times_.front() > window_.value_or(0)) times_.pop_front();
  done_ = std::max(in_row_, static_cast<int>(times_.size()));
  too_often_ = in_row_ < allowed_ && done_ >= allowed_;
  if (outcome.host_lost || done_ >= allowed_) return Decision::give_up;
  ++done_;
  ++in_row_;
  if (window_) times_.push_back(now);
  return Decision::restart;
}

}  // namespace tessera::tsrun
