#pragma once

#include "framework/training/loop/run_reports.h"
#include "framework/training/reports/evaluator.h"

namespace tessera::training {

/// When a run evaluates: every eval_interval steps on the validation data, and at its end on all. As in Megatron-LM, an
/// evaluation continues with the validation samples that follow those of the previous one.
class RunEvaluation final : public Participant {
 public:
  /// Both arguments must outlive this object.
  RunEvaluation(Run& run, RunReports& reports) : run_(run), reports_(reports), evaluator_(run.setup, run.work) {}

  /// Whether an evaluation follows the last step.
  bool is_due() const;

  void adopt(const RunPosition& position) override { done_ = position.evaluated; }
  void add_to(RunPosition& position) const override { position.evaluated = done_; }
  void completed(const reporting::StepRecord& record) override;
  void end_step() override;
  void stop(bool completed) override;
  void went_back(const Restored&) override { done_ = true; }

 private:
  void begin();

  Run& run_;
  RunReports& reports_;
  Evaluator evaluator_;
  bool done_ = true;  ///< the evaluation that may be due after the last step is done
};

}  // namespace tessera::training
