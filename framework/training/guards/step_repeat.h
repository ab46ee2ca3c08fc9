#pragma once

#include <span>
#include <string>
#include <vector>

#include "framework/training/guards/rejected_results.h"
#include "framework/training/guards/step_numbers.h"
#include "framework/training/options/training_options.h"
#include "framework/training/step/step.h"

namespace tessera::training {

/// Result of computing a step again.
struct RepeatedStep {
  StepOutcome outcome;   ///< outcome of the repetition
  std::string suspects;  ///< ranks, with hosts, of which at least one computed something else; empty: no difference
};

/// Repeats the step after the first `consumed` samples, which TrainingStep::backward(consumed) has just computed.
/// Changes no weight; it may be called any number of times before StateKeeper::intend(). The same result on all ranks.
/// Collective.
RepeatedStep repeat_step(TrainingStep& work, const comm::Communicator& world, std::int64_t consumed);

/// Returns the ranks of which one failed, if a step gave the prints `first` and then `second` (indexed by rank). If
/// losses differ: all ranks of the replicas with different losses, because these ranks compute a loss together, and
/// wrong gradients on other ranks follow from it. Otherwise: the ranks whose gradients differ, which have summed them.
/// A pure function.
std::vector<int> suspects_of(std::span<const StepPrint> first, std::span<const StepPrint> second);

/// A step whose results were checked.
struct JudgedStep {
  StepOutcome outcome;  ///< the valid outcome
  BadNumbers bad = BadNumbers::none;
  std::vector<std::string> notes;        ///< messages for the log
  std::vector<RejectedResult> rejected;  ///< results to write to the file of rejected results
};

/// Checks the outcome of the step after `progress`, and repeats the step if it looks wrong and `mode` allows it. If the
/// repetition gives the same result, the numbers are correct and the data or the model are the cause. If it gives
/// another result, hardware failed, and the repetition is valid. Throws Error if the result is still wrong after three
/// repetitions that all differ. Collective.
JudgedStep judge_step(TrainingStep& work, const comm::Communicator& world, const StepOutcome& outcome,
                      const checkpoint::Progress& progress, const NumberChecks& checks, RerunMode mode);

}  // namespace tessera::training
