#pragma once

#include "framework/checkpoint/progress.h"
#include "framework/training/run_log.h"
#include "framework/training/step.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// The evaluations of a run on its validation and test splits. All ranks call the same functions.
class Evaluator {
 public:
  /// None is owned; both outlive this.
  Evaluator(const TrainingSetup& setup, TrainingStep& work) : setup_(setup), work_(work) {}

  /// On the validation split or on each validation set, after `progress`; `log`, which may be null, gets the losses.
  void validate(EvaluationRecord::Set set, const checkpoint::Progress& progress, RunLog* log);
  /// On the test split.
  void test(const checkpoint::Progress& progress, RunLog* log);
  /// A training step of the whole batch took so long: until an evaluation has been measured, its iterations are
  /// expected to take a third of it.
  void expect(double step_seconds);

 private:
  std::int64_t samples_per_step() const { return setup_.data.batch_plan.full().samples; }
  std::int64_t steps_of(const data::Dataset& data, EvaluationRecord::Set set) const;
  void evaluate(const data::Dataset* data, const data::Sampler* order, EvaluationRecord record, std::int64_t consumed,
                RunLog* log);

  const TrainingSetup& setup_;
  TrainingStep& work_;
  bool measured_ = false;
  double iteration_seconds_ = 0;  ///< measured, or expected
};

}  // namespace tessera::training
