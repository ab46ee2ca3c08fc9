#pragma once

#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/training/step/update_scalars.h"

namespace tessera::training {

/// What is wrong with the results of a step.
enum class BadNumbers {
  none,
  not_finite,       ///< loss or gradient norm is NaN or infinite
  spiky_loss,       ///< the loss is at least `too_large` times the largest loss so far
  large_gradients,  ///< the gradient norm is at least `too_large` times the largest norm so far
};

/// Which checks are enabled.
struct NumberChecks {
  bool finite = true, spiky_loss = false, large_gradients = false;
};

/// A loss or norm is wrong if it is this many times the largest of the good steps, once there are at least
/// steps_before_judgement good steps. Source of the factor: Megatron-LM (rerun_state_machine.py,
/// is_unexpectedly_large).
inline constexpr double too_large = 10;
inline constexpr std::int64_t steps_before_judgement = 10;

/// Checks the results of a step. All ranks get the same result, because the arguments are equal on all ranks.
BadNumbers judge(const StepOutcome& outcome, const checkpoint::NumberHistory& history, const NumberChecks& checks);
/// Text for messages, for example "loss 61.2 is 10.8 times the largest of 12 steps, 5.6".
std::string words_of(BadNumbers bad, const StepOutcome& outcome, const checkpoint::NumberHistory& history);

/// Adds a good step to the history, one whose weights were changed. `iteration` is counted from 0.
void add_good(checkpoint::NumberHistory& history, const StepOutcome& outcome, std::int64_t iteration);

}  // namespace tessera::training
