#pragma once

#include <optional>
#include <string>

#include "framework/training/guards/step_repeat.h"
#include "framework/training/loop/state_guard.h"
#include "framework/training/saving/sample_quarantine.h"

namespace tessera::training {

/// Makes the steps of a run: computes, judges and applies them, and advances the position. Wrong numbers end the run,
/// or are skipped; too many in a row return it to a checkpoint.
class TrainingSteps final : public Participant, public LoopSteps {
 public:
  /// All references must outlive this object.
  TrainingSteps(Run& run, RunReports& reports, StateGuard& guard);

  /// Brings the data to the position of the run, reads the reference model and the lists of what is skipped, and
  /// connects the step with those who look into it. Call it once, before the first step. Collective.
  void prepare();
  /// Completes the step that all ranks agreed on, if earlier processes did not. Collective.
  void recover();

  bool ended() const override { return run_.is_complete() || run_.stop.asked(); }
  bool skip() override;
  bool make() override;
  std::string reason_to_stop() override;
  void begin_iteration() override;
  void begin_step() override { run_.wait_for_step(); }
  void went_back() override { run_.progress.quarantine = quarantine_.found(); }

 private:
  void begin_data();
  void prepare_reference();
  void read_rejected();
  void connect();
  NumberChecks number_checks() const;
  void advance(const StepIntent& intent, std::int64_t samples);
  void complete(const StepIntent& intent, double seconds, std::optional<double> waited = {});
  bool accepts(const JudgedStep& judged);
  void go_back_behind_bad_steps(const JudgedStep& judged);
  [[noreturn]] void fail(const JudgedStep& judged, const std::string& why = {});

  Run& run_;
  const TrainingOptions& o_;
  RunReports& reports_;
  StateGuard& guard_;
  SampleQuarantine quarantine_;
};

}  // namespace tessera::training
