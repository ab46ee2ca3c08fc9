#pragma once

#include "framework/training/loop/run_reports.h"

namespace tessera::training {

/// Evaluates a run: every eval_interval steps on the validation data, and at its end on all. As in Megatron-LM, an
/// evaluation continues with the validation samples that follow those of the previous one.
class RunEvaluation final : public Participant {
 public:
  /// Both arguments must outlive this object.
  RunEvaluation(Run& run, RunReports& reports);

  /// Whether an evaluation follows the last step.
  bool is_due() const;

  void completed(const reporting::StepRecord& record) override;
  void end_step() override;
  void stop(bool completed) override;

 private:
  using Record = reporting::EvaluationRecord;
  void begin();
  void validate(Record::Set set);
  void evaluate(const data::Dataset* data, const data::Sampler* order, Record record);

  Run& run_;
  RunReports& reports_;
  std::vector<reporting::MetricRecord> metrics_;  ///< of the objective
  bool measured_ = false;                         ///< a global batch was evaluated
  double batch_seconds_ = 0;                      ///< its time: measured, or until then a third of a training step
};

}  // namespace tessera::training
