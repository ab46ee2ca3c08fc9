#include "launch/tsrun/restarts.h"

#include "framework/worker/launch_link.h"

namespace tessera::tsrun {

void Restarts::carry_held(Outcome& outcome) {
  if (outcome.held < 0) outcome.held = carried_;
  carried_ = outcome.held;
}

Restarts::Decision Restarts::decide(const Outcome& outcome) {
  const bool holds = outcome.held >= 0, went_on = outcome.held > held_;
  allowed_ = most_.value_or(holds ? of_held_state : 0);
  if (outcome.refused || outcome.code == worker::nothing_saved) return Decision::give_up;
  if (holds && !went_on && !outcome.cause.empty() && outcome.cause == cause_) return Decision::poison;
  if (holds && went_on) done_ = 0;
  held_ = outcome.held;
  cause_ = outcome.cause;
  if (outcome.host_lost || done_ >= allowed_) return Decision::give_up;
  ++done_;
  return Decision::restart;
}

}  // namespace tessera::tsrun
