#pragma once

#include "framework/checkpoint/progress.h"
#include "framework/reporting/run_log.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/step/step.h"

namespace tessera::training {

/// Evaluates a run on its validation and test splits. Collective: all ranks call the same functions.
class Evaluator {
 public:
  /// Both arguments must outlive this object.
  Evaluator(const TrainingSetup& setup, TrainingStep& work) : setup_(setup), work_(work) {
    for (const auto& name : setup.optimization.objective->metrics()) metrics_.push_back({name});
  }

  /// Evaluates the validation split, or each validation set, after `progress`. `log` gets the losses; null: no log.
  void validate(reporting::EvaluationRecord::Set set, const checkpoint::Progress& progress, reporting::RunLog* log);
  /// Evaluates the test split.
  void test(const checkpoint::Progress& progress, reporting::RunLog* log);
  /// `step_seconds`: duration of a training step with the full batch. Until an evaluation has been measured, an
  /// evaluation iteration is expected to take a third of it.
  void expect(double step_seconds);

 private:
  std::int64_t samples_per_step() const { return setup_.data.batch_plan.full().samples; }
  std::int64_t steps_of(const data::Dataset& data, reporting::EvaluationRecord::Set set) const;
  void evaluate(const data::Dataset* data, const data::Sampler* order, reporting::EvaluationRecord record,
                std::int64_t consumed, reporting::RunLog* log);

  const TrainingSetup& setup_;
  TrainingStep& work_;
  std::vector<reporting::MetricRecord> metrics_;  ///< of the objective
  bool measured_ = false;
  double iteration_seconds_ = 0;  ///< measured, or expected until then
};

}  // namespace tessera::training
