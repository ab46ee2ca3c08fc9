#include "framework/schedule/batch_plan.h"

#include <algorithm>

#include "framework/options/limits.h"

namespace tessera::schedule {

void describe(options::Schema<BatchRampOptions>& s) {
  using O = BatchRampOptions;
  s.when_changed(options::Change::told);
  s.option("rampup_batch_size", &O::rampup_batch_size,
           "Batch size ramp-up: [initial size, increment, samples until `global_batch_size` is reached]; null: none.")
      .at_least(0)
      .at_most(options::most_samples);
  s.option("decrease_batch_size_if_needed", &O::decrease_batch_size_if_needed,
           "Reduce the global batch size to a multiple of the micro-batch size times the data-parallel ranks.");
}

namespace {

struct Ramp {
  std::int64_t first, increment, samples;
};

std::vector<options::Finding> broken_ramp(const std::vector<std::int64_t>& r, std::int64_t global) {
  constexpr const char* key = "rampup_batch_size";
  const auto broken = [&](std::string message, const char* advice) {
    return std::vector<options::Finding>{{key, std::move(message), advice, "B3"}};
  };
  if (r.size() != 3)
    return broken(text("rampup_batch_size has ", r.size(), " numbers"),
                  "give three: [first size, increment, samples until the full size]");
  const auto [first, increment, samples] = Ramp{r[0], r[1], r[2]};
  if (first <= 0 || increment <= 0 || samples < 0)
    return broken(text("rampup_batch_size [", first, ", ", increment, ", ", samples, "] does not grow"),
                  "first size and increment are above 0");
  if (first > global)
    return broken(text("rampup_batch_size begins with ", first, ", above the full size ", global),
                  "begin below global_batch_size");
  if ((global - first) % increment != 0)
    return broken(text("rampup_batch_size: the increase from ", first, " to ", global,
                       " is not divisible by the increment ", increment),
                  "give an increment that divides it");
  if (first == global || samples == 0)
    return broken(first == global ? text("rampup_batch_size begins with the full size ", global)
                                  : std::string("rampup_batch_size ends after 0 samples, so it has no effect"),
                  "leave it out");
  return {};
}

}  // namespace

std::vector<options::Finding> broken_rules(const BatchRampOptions& o, const BatchSizes& sizes) {
  if (o.rampup_batch_size) return broken_ramp(*o.rampup_batch_size, sizes.global);
  const auto stride = sizes.micro * sizes.ranks;
  if (o.decrease_batch_size_if_needed) {
    if (sizes.global >= stride) return {};
    return {{"global_batch_size",
             text("global_batch_size ", sizes.global, " is below batch_size ", sizes.micro,
                  sizes.ranks > 1 ? text(" on ", sizes.ranks, " ranks") : ""),
             "make it larger", "B2"}};
  }
  if (sizes.global % stride == 0) return {};
  return {{"global_batch_size",
           text("global_batch_size is ", sizes.global, ", which batch_size ", sizes.micro,
                sizes.ranks > 1 ? text(" on ", sizes.ranks, " ranks") : "", " does not divide"),
           "make it a multiple", "B2"}};
}

BatchPlan::BatchPlan(const BatchRampOptions& o, const BatchSizes& sizes)
    : sizes_(sizes), decrease_(o.decrease_batch_size_if_needed), first_(sizes.global) {
  options::refuse("batch sizes", broken_rules(o, sizes));
  if (!o.rampup_batch_size) return;
  first_ = (*o.rampup_batch_size)[0];
  increment_ = (*o.rampup_batch_size)[1];
  ramp_samples_ = (*o.rampup_batch_size)[2];
}

StepSize BatchPlan::size_of(std::int64_t nominal) const {
  const auto stride = sizes_.micro * sizes_.ranks;
  return {nominal / stride, nominal, decrease_ ? nominal / stride * stride : nominal};
}

/// A lower bound, at most a few samples too small, of the consumed samples at which the scheduled size changes from
/// `size` to the next size. Subtracts 2 because of rounding.
std::int64_t BatchPlan::end_of_stride(std::int64_t size) const {
  const auto strides = static_cast<double>((sizes_.global - first_) / increment_);
  const auto next = static_cast<double>((size - first_) / increment_ + 1);
  return static_cast<std::int64_t>(next * (static_cast<double>(ramp_samples_) / strides)) - 2;
}

StepSize BatchPlan::planned(std::int64_t consumed) const {
  if (!grows() || consumed > ramp_samples_) return full();
  const auto strides = static_cast<double>((sizes_.global - first_) / increment_);
  const auto samples_per_stride = static_cast<double>(ramp_samples_) / strides;
  // Computed in double and truncated, as in Megatron-LM: integer arithmetic would differ where the division is inexact.
  const auto done = static_cast<std::int64_t>(static_cast<double>(consumed) / samples_per_stride);
  return size_of(first_ + done * increment_);
}

std::optional<options::Finding> BatchPlan::broken_rule(const StepSize& size, std::int64_t consumed) const {
  const auto broken = [&](const char* how, const char* advice) {
    return options::Finding{
        .option = "rampup_batch_size",
        .message = text("after ", consumed, " samples the global batch is ", size.nominal, how, "batch_size ",
                        sizes_.micro, sizes_.ranks > 1 ? text(" on ", sizes_.ranks, " ranks") : ""),
        .advice = advice,
        // Megatron-LM accepts a size that it rounds down to no micro-batch.
        .rule = decrease_ && size.micro_batches == 0 ? "empty step" : "B2"};
  };
  if (size.micro_batches == 0) return broken(", less than ", "begin rampup_batch_size higher, or lower batch_size");
  if (size.micro_batches * sizes_.micro * sizes_.ranks != size.samples)
    return broken(", no multiple of ", "change rampup_batch_size, or give decrease_batch_size_if_needed");
  return std::nullopt;
}

StepSize BatchPlan::at(std::int64_t consumed) const {
  const auto size = planned(consumed);
  if (const auto broken = broken_rule(size, consumed)) options::refuse("batch sizes", {*broken});
  return size;
}

std::optional<options::Finding> BatchPlan::broken_step(std::int64_t samples) const {
  std::optional<options::Finding> broken;
  each_size(samples, [&](const StepSize& size, std::int64_t consumed) {
    broken = broken_rule(size, consumed);
    return !broken;
  });
  return broken;
}

void BatchPlan::each_size(std::int64_t samples,
                          const std::function<bool(const StepSize&, std::int64_t consumed)>& visit) const {
  for (std::int64_t consumed = 0; consumed < samples;) {
    const auto size = planned(consumed);
    if (!visit(size, consumed) || size.samples == 0) return;
    if (!grows() || consumed > ramp_samples_) return;  // all following steps have the same size
    const auto last = std::max(std::min(end_of_stride(size.nominal), samples), consumed);
    consumed += ((last - consumed) / size.samples + 1) * size.samples;
  }
}

std::int64_t BatchPlan::steps_of(std::int64_t samples) const {
  std::int64_t consumed = 0, steps = 0;
  const auto last = std::min(ramp_samples_, samples);
  while (grows() && consumed <= last) {
    const auto size = planned(consumed).nominal;
    const auto count = (std::max(std::min(end_of_stride(size), last), consumed) - consumed) / size + 1;
    consumed += count * size;
    steps += count;
  }
  if (consumed < samples) steps += (samples - consumed) / sizes_.global;
  return steps;
}

}  // namespace tessera::schedule
