#include "framework/model/objective.h"

namespace tessera::model {

TokenWeights Objective::weigh(autograd::Tape&, const TokenBatch&, const StepShare&) const {
  throw BugError("an objective that weighs tokens has weigh()");
}

autograd::LossSum Objective::judge(const Losses&, std::span<float>, std::span<autograd::LossSum>) const {
  throw BugError("an objective that does not weigh tokens has judge()");
}

}  // namespace tessera::model
