#include "framework/training/loop/participant.h"

namespace tessera::training {

std::string run_steps(LoopSteps& steps, const Participants& participants, std::string why) {
  while (why.empty() && !steps.ended()) {
    participants.call(&Participant::begin_iteration);
    if (steps.skip()) continue;
    participants.call(&Participant::begin_step);
    if (!steps.make()) continue;
    participants.call(&Participant::end_step);
    participants.call(&Participant::save);
    why = steps.reason_to_stop();
  }
  return why;
}

}  // namespace tessera::training
