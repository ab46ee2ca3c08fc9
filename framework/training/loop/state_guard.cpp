#include "framework/training/loop/state_guard.h"

namespace tessera::training {

StateChecks::Result StateGuard::checked() {
  auto found = run_.checks.check(run_.progress.iteration);
  reports_.note(found.notes);
  return found;
}

bool StateGuard::state_was_sound() {
  const auto found = checked();
  run_.participants.call(&Participant::state_checked, is_undamaged(found));
  if (found.sound) return !found.repaired;
  if (!can_go_back(run_.setup, run_.progress.run, run_.progress.iteration))
    throw Error(text("training: ", found.problem,
                     ". Nothing of it was saved, and there is no checkpoint to go back to: test the ",
                     "memory of these hosts, and start again with training_config.save_interval"));
  reports_.note(found.problem + ": the run goes back to its newest checkpoint");
  go_back(run_.progress.iteration, found.problem);
  return false;
}

void StateGuard::go_back(std::int64_t back_to, const std::string& reason) {
  const auto reached = run_.progress.iteration;
  run_.participants.call(&Participant::finish_pending);  // nothing but an update may change the state before
  run_.wait_longest();
  auto kept = run_.position();
  kept.back_to = back_to;
  run_.keeper.withdraw(kept);
  run_.faults.reach(reached, resilience::Phase::roll_back);
  run_.go_back(restore_back(run_.setup, run_.state, run_.threads, run_.folder, run_.progress, back_to));
  reports_.note(run_.restored.notes);
  run_.participants.call(&Participant::went_back);
  reports_.event("went_back", reached, {{"to", run_.progress.iteration}, {"reason", reason}});
  run_.checks.seal();
  run_.begin_memory();
  run_.faults.reach(run_.progress.iteration, resilience::Phase::roll_back);
  run_.participants.call(&Participant::resumed);
}

void StateGuard::end_step() {
  if (run_.checks.due(run_.progress.iteration) || evaluation_.is_due()) state_was_sound();
}

}  // namespace tessera::training
