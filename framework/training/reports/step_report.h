#pragma once

#include <cstdint>
#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/reporting/metrics.h"
#include "framework/training/setup/training_setup.h"
#include "framework/training/step/run_position.h"

namespace tessera::training {

/// The measured bubble of a pipeline, over all steps of a process except the first.
class PipelineBubble {
 public:
  /// Adds the times of a step. The first step is ignored, because it allocates memory and starts threads.
  void add(const StepOutcome& outcome);
  /// Text with the measured bubble and that of equal stages; empty without a pipeline or without steps.
  std::string line(const TrainingSetup& setup) const;

 private:
  bool warm_ = false;
  double stage_seconds_ = 0, wait_seconds_ = 0;  ///< sums over all ranks
};

/// Returns the part of the record of step `progress.iteration` + 1 that is known before counters, schedule and loss
/// scale advance: outcome, times, rates of the step. `seconds`: duration of the step; `samples`: samples of the step.
reporting::StepRecord begun_record(const TrainingSetup& setup, const StepIntent& intent, double seconds,
                                   std::int64_t samples);

/// Adds the part that is known after they have advanced: `progress` and the rates of the next step.
void complete_record(reporting::StepRecord& record, const TrainingSetup& setup, const checkpoint::Progress& progress);

}  // namespace tessera::training
