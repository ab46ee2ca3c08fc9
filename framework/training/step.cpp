#include "framework/training/step.h"

#include <algorithm>
#include <cmath>

#include "framework/base/clock.h"
#include "framework/kernels/convert.h"
#include "framework/kernels/vector.h"

namespace tessera {
namespace {

double tokens_that_count(const TokenBatch& batch) {
  double count = 0;
  for (const auto m : batch.loss_mask) count += m;
  return count;
}

}  // namespace

bool StepOutcome::finite() const { return std::isfinite(loss) && std::isfinite(grad_norm); }

TrainingStep::TrainingStep(const Parts& parts, ModelState& state, Threads& threads, std::uint64_t seed)
    : parts_(parts),
      state_(state),
      threads_(threads),
      seed_(seed),
      recording_(arena_, threads, true),
      looking_(arena_, threads, false),
      batch_(parts.batch.batch_size, parts.data->train ? parts.data->train->seq_length() : 0) {
  sort_into_groups();
}

void TrainingStep::sort_into_groups() {
  for (const auto& run : state_.layout().runs()) {
    const auto group = group_of(parts_.groups, run.parameter->name, run.parameter->global_shape.rank());
    const auto known = std::find(groups_.begin(), groups_.end(), group);
    group_of_.push_back(static_cast<std::size_t>(known - groups_.begin()));
    if (known == groups_.end()) groups_.push_back(group);
  }
  scalars_.resize(groups_.size());
}

TokenBatch TrainingStep::read(const Dataset& data, const Sampler& order, std::int64_t consumed) {
  read_batch(data, order, consumed, 0, 1, batch_);
  return {batch_.samples,   batch_.seq_length,     batch_.tokens,    batch_.labels,
          batch_.positions, batch_.document_start, batch_.loss_mask, batch_.sample_ids};
}

StepOutcome TrainingStep::backward(std::int64_t consumed) {
  StepOutcome outcome;
  LossSum all;
  const auto count = parts_.batch_plan.at(consumed).micro_batches;
  const bool per_token = parts_.options.calculate_per_token_loss;
  const double scale = static_cast<double>(parts_.loss_scaler.scale());
  fill(threads_, 0, state_.gradients());
  for (std::int64_t i = 0; i < count; ++i) {
    const Stopwatch waiting;
    const auto batch = read(*parts_.data->train, *parts_.train_order, consumed + i * batch_.samples);
    outcome.data_wait_seconds += waiting.seconds();
    const auto tokens = per_token ? 1 : tokens_that_count(batch) * static_cast<double>(count);
    ForwardMode mode;
    mode.seed = seed_;
    mode.training = true;
    mode.loss_seed = tokens > 0 ? scale / tokens : 0;
    const auto total = parts_.model->loss(recording_, batch, mode).total;
    recording_.backward();
    recording_.clear();
    round_to(threads_, parts_.precision.gradients, state_.gradients());
    all.sum += total.sum;
    all.count += total.count;
  }
  outcome.loss = all.count > 0 ? all.sum / all.count : 0;
  outcome.gradient_factor = parts_.loss_scaler.inverse();
  if (per_token && all.count > 0) outcome.gradient_factor /= all.count;
  outcome.grad_norm = std::sqrt(sum_of_squares(threads_, state_.gradients())) * outcome.gradient_factor;
  return outcome;
}

void TrainingStep::update(std::int64_t number, const StepOutcome& outcome) {
  const auto& schedule = *parts_.schedule;
  const auto& own = parts_.groups;
  for (std::size_t k = 0; k < groups_.size(); ++k) {
    const auto& group = groups_[k];
    const double rate =
        group.decoupled
            ? schedule.learning_rate(*own.decoupled_lr, own.decoupled_min_lr.value_or(schedule.rate_shape().lowest))
            : schedule.learning_rate();
    scalars_[k].step = number;
    scalars_[k].lr = rate * group.lr_mult;
    scalars_[k].weight_decay = schedule.weight_decay() * group.wd_mult;
    scalars_[k].clip = clip_coefficient(outcome.grad_norm, parts_.clipping.clip_grad) * outcome.gradient_factor;
  }
  state_.update(threads_, scalars_, group_of_);
}

std::int64_t TrainingStep::zeros_in_gradients() const {
  std::int64_t zeros = 0;  // parameter by parameter: the padding between them is zero too
  for (const auto& run : state_.layout().runs())
    zeros += count_zeros(threads_, FlatParameters::view(run, state_.gradients()).floats());
  return zeros;
}

double TrainingStep::weight_norm() const { return std::sqrt(sum_of_squares(threads_, state_.weights())); }

double TrainingStep::evaluate(const Dataset& data, const Sampler& order, std::int64_t consumed, std::int64_t steps) {
  LossSum all;
  for (std::int64_t i = 0; i < steps * parts_.batch_plan.full().micro_batches; ++i) {
    const auto batch = read(data, order, consumed + i * batch_.samples);
    const auto total = parts_.model->loss(looking_, batch, {}).total;
    looking_.clear();
    all.sum += total.sum;
    all.count += total.count;
  }
  return all.count > 0 ? all.sum / all.count : 0;
}

std::string TrainingStep::first_not_finite(std::int64_t consumed) {
  for (const auto& range : state_.weight_ranges()) {
    const auto at = tessera::first_not_finite(threads_, range.tensor.floats());
    if (at >= 0) return text("weight ", range.name, " ", range.global_shape, " is not finite at element ", at);
  }
  std::string found;
  const Tap tap = [&](std::string_view name, const Tensor& value) {
    const auto at = found.empty() ? tessera::first_not_finite(threads_, value) : -1;
    if (at >= 0) found = text("what ", name, " gives, ", value.shape(), ", is not finite at element ", at);
  };
  ForwardMode mode;
  mode.seed = seed_;
  mode.training = true;
  mode.tap = &tap;
  const auto count = parts_.batch_plan.at(consumed).micro_batches;
  for (std::int64_t i = 0; i < count && found.empty(); ++i) {
    const auto batch = read(*parts_.data->train, *parts_.train_order, consumed + i * batch_.samples);
    const auto result = parts_.model->loss(looking_, batch, mode);
    const auto at = tessera::first_not_finite(threads_, result.token_loss.floats());
    if (at >= 0 && found.empty())
      found = text("the loss of token ", at, " of micro batch ", i, " is not finite, all layers were");
  }
  looking_.clear();
  if (!found.empty()) return found;
  for (const auto& run : state_.layout().runs()) {
    const auto at = tessera::first_not_finite(threads_, run.parameter->leaf.grad.floats());
    if (at >= 0)
      return text("the gradient of ", run.parameter->name, " is not finite at element ", at, ", all values were");
  }
  return "every value is finite, but their sum of squares is not: gradients are too large for the norm";
}

}  // namespace tessera
