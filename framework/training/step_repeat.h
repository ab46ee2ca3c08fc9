#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/training/rejected_results.h"
#include "framework/training/step.h"
#include "framework/training/step_numbers.h"
#include "framework/training/training_options.h"

namespace tessera::training {

/// A step that was computed again.
struct RepeatedStep {
  StepOutcome outcome;  ///< of the repeat
  std::string
      suspects;  ///< ranks that computed something else, or of which one did, with their hosts; empty: nothing differs
};

/// Computes the step that follows `consumed` samples, which TrainingStep::backward(consumed) has just computed, again.
/// Changes no weight: before StateKeeper::intend it may be called any number of times. The same on all ranks.
/// Collective.
RepeatedStep repeat_step(TrainingStep& work, const comm::Communicator& world, std::int64_t consumed);

/// The ranks of which one failed if a step was computed as `first` and then as `second`, by rank. Where losses differ,
/// the replicas whose loss does: its ranks together compute it, and wrong gradients of others follow from it. Else the
/// ranks whose gradients differ, which have summed them. Pure.
std::vector<int> suspects_of(std::span<const StepPrint> first, std::span<const StepPrint> second);

/// A step whose numbers were judged.
struct JudgedStep {
  StepOutcome outcome;  ///< that counts
  BadNumbers bad = BadNumbers::none;
  std::vector<std::string> notes;  ///< for the log
  std::vector<RejectedResult> rejected;
};

/// Judges the outcome of the step after `progress`, and repeats the step if it looks wrong and `mode` allows. If the
/// repeat gives the same, the numbers are right and stand for bad data or a bad model. If it gives something else,
/// hardware failed, and the repeat counts. Throws Error if the results still differ at the last repeat and are wrong.
/// Collective.
JudgedStep judge_step(TrainingStep& work, const comm::Communicator& world, const StepOutcome& outcome,
                      const checkpoint::Progress& progress, const NumberChecks& checks, RerunMode mode);

}  // namespace tessera::training
