#pragma once

#include <cstdint>
#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/parallel/pipeline_schedule.h"
#include "framework/training/metrics.h"
#include "framework/training/run_position.h"
#include "framework/training/training_setup.h"

namespace tessera::training {

/// The measured bubble of a pipeline, over all steps but the first of a process.
class PipelineBubble {
 public:
  /// The seconds of a step; of the first, which prepares memory and threads, they do not count.
  void add(const StepOutcome& outcome);
  /// The bubble beside that of equal stages, for people; empty without a pipeline or without steps.
  std::string line(const TrainingSetup& setup) const;

 private:
  bool warm_ = false;
  double stage_seconds_ = 0, wait_seconds_ = 0;  ///< of all ranks
};

/// What a record says of step `progress.iteration` + 1 before counters, schedule and loss scale move: outcome, times,
/// the rates that the step used. `seconds`: duration of the step; `samples`: of the step.
StepRecord begun_record(const TrainingSetup& setup, const StepIntent& intent, double seconds, std::int64_t samples);

/// What it says after they moved: `progress` and the rates of the next step.
void complete_record(StepRecord& record, const TrainingSetup& setup, const checkpoint::Progress& progress);

}  // namespace tessera::training
