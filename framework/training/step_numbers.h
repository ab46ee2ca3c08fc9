#pragma once

#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/training/update_scalars.h"

namespace tessera::training {

/// What is wrong with the numbers of a step.
enum class BadNumbers {
  none,
  not_finite,       ///< loss or gradient norm is NaN or infinite
  spiky_loss,       ///< the loss is 10 times the largest so far, or more
  large_gradients,  ///< the same of the gradient norm
};

/// What is looked for.
struct NumberChecks {
  bool finite = true, spiky_loss = false, large_gradients = false;
};

/// A loss or norm of this many times the largest of the good steps is too large, once there are so many of them. The
/// factor is that of Megatron-LM (rerun_state_machine.py, is_unexpectedly_large).
inline constexpr double too_large = 10;
inline constexpr std::int64_t steps_before_judgement = 10;

/// A function of numbers that all ranks have alike, so that they come to the same result.
BadNumbers judge(const StepOutcome& outcome, const checkpoint::NumberHistory& history, const NumberChecks& checks);
/// "loss 61.2 is 10.8 times the largest of 12 steps, 5.6"
std::string words_of(BadNumbers bad, const StepOutcome& outcome, const checkpoint::NumberHistory& history);

/// Step `iteration`, counted from 0, is good: its weights were changed.
void add_good(checkpoint::NumberHistory& history, const StepOutcome& outcome, std::int64_t iteration);

}  // namespace tessera::training
