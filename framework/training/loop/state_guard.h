#pragma once

#include "framework/training/loop/run_evaluation.h"

namespace tessera::training {

/// Finds state that something else than an update has changed, and returns the run to a checkpoint where it cannot be
/// repaired, or where numbers were wrong too often.
class StateGuard final : public Participant {
 public:
  /// All references must outlive this object.
  StateGuard(Run& run, RunReports& reports, const RunEvaluation& evaluation)
      : run_(run), reports_(reports), evaluation_(evaluation) {}

  /// Checks the state of all ranks and repairs it where possible. Returns whether it had no damage. Collective.
  bool check() { return is_undamaged(checked()); }
  /// As check(), after the last update of each rank. If some of the state was wrong and cannot be repaired, the run
  /// goes back to its newest checkpoint. False: gradients that were computed since are not to be used. Throws Error if
  /// there is no checkpoint. Collective.
  bool state_was_sound();
  /// Returns the run to its newest checkpoint that is not after iteration `back_to`; findings and open files stay as
  /// they are now. The position is recorded first, so processes that are started after a failure return to it too. Call
  /// it between two steps, before StateKeeper::intend(). Collective.
  void go_back(std::int64_t back_to, const std::string& reason);

  /// What is evaluated must be sound.
  void end_step() override;

 private:
  StateChecks::Result checked();
  static bool is_undamaged(const StateChecks::Result& found) { return found.sound && !found.repaired; }

  Run& run_;
  RunReports& reports_;
  const RunEvaluation& evaluation_;
};

}  // namespace tessera::training
