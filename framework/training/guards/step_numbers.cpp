#include "framework/training/guards/step_numbers.h"

#include <algorithm>
#include <cmath>

#include "framework/base/error.h"

namespace tessera::training {

BadNumbers judge(const StepOutcome& outcome, const checkpoint::NumberHistory& history, const NumberChecks& checks) {
  if (!outcome.finite()) return checks.finite ? BadNumbers::not_finite : BadNumbers::none;
  if (history.good_steps < steps_before_judgement) return BadNumbers::none;
  if (checks.spiky_loss && outcome.loss >= too_large * history.largest_loss) return BadNumbers::spiky_loss;
  if (checks.large_gradients && outcome.grad_norm >= too_large * history.largest_grad_norm)
    return BadNumbers::large_gradients;
  return BadNumbers::none;
}

std::string words_of(BadNumbers bad, const StepOutcome& outcome, const checkpoint::NumberHistory& history) {
  const auto times = [&](const char* what, double value, double largest) {
    return text(what, " ", value, " is ", value / largest, " times the largest of ", history.good_steps, " steps, ",
                largest);
  };
  switch (bad) {
    case BadNumbers::spiky_loss:
      return times("loss", outcome.loss, history.largest_loss);
    case BadNumbers::large_gradients:
      return times("gradient norm", outcome.grad_norm, history.largest_grad_norm);
    case BadNumbers::not_finite:
    case BadNumbers::none:
      break;
  }
  return text("loss ", outcome.loss, ", gradient norm ", outcome.grad_norm);
}

void add_good(checkpoint::NumberHistory& history, const StepOutcome& outcome, std::int64_t iteration) {
  history.largest_loss = std::max(history.largest_loss, outcome.loss);
  history.largest_grad_norm = std::max(history.largest_grad_norm, outcome.grad_norm);
  ++history.good_steps;
  history.last_good = iteration;
  history.bad_in_row = 0;
}

}  // namespace tessera::training
