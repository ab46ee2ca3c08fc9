#include "framework/training/step/update_scalars.h"

#include <algorithm>
#include <cmath>

#include "framework/training/state/trained_names.h"

namespace tessera::training {
namespace {

/// Whether all elements keep their values: then neither weight decay nor the moments of steps before they were frozen
/// must change them.
bool is_frozen(const nn::Parameter& parameter) { return trained_elements(parameter) == 0; }

}  // namespace

bool StepOutcome::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

UpdateScalars::UpdateScalars(const OptimizationSetup& optimization, std::span<const nn::Parameter* const> parameters)
    : optimization_(optimization) {
  for (const auto* parameter : parameters) {
    auto group = optim::group_of(optimization.groups, parameter->role, parameter->name);
    if (const auto& plus = optimization.lora_plus) group.lr_mult *= plus->factor(parameter->role, parameter->name);
    if (is_frozen(*parameter)) group.lr_mult = group.wd_mult = 0;
    const auto known = std::find(groups_.begin(), groups_.end(), group);
    group_of_.push_back(static_cast<std::size_t>(known - groups_.begin()));
    if (known == groups_.end()) groups_.push_back(group);
  }
  scalars_.resize(groups_.size());
}

std::span<optim::StepScalars> UpdateScalars::at(const UpdateRates& rates, const StepOutcome& outcome) {
  for (std::size_t k = 0; k < groups_.size(); ++k) {
    const auto& group = groups_[k];
    auto& scalars = scalars_[k] = {};
    scalars.step = rates.number;
    scalars.lr = (group.decoupled ? rates.decoupled_rate : rates.learning_rate) * group.lr_mult;
    scalars.weight_decay = rates.weight_decay * group.wd_mult;
    scalars.clip =
        optim::clip_coefficient(outcome.grad_norm, optimization_.clipping.clip_grad) * outcome.gradient_factor;
    scalars.balances = group.balances;
    if (group.balances) scalars.lr = optimization_.expert_bias_rate;
  }
  return scalars_;
}

}  // namespace tessera::training
