#include "framework/schedule/batch_plan.h"

namespace tessera {

void describe(Schema<BatchRampOptions>& s) {
  using O = BatchRampOptions;
  s.option("rampup_batch_size", &O::rampup_batch_size,
           "The global batch grows: [first size, increment, samples until it is global_batch_size]; null: it does not.")
      .at_least(0);
  s.option("decrease_batch_size_if_needed", &O::decrease_batch_size_if_needed,
           "Read fewer samples where micro-batches do not divide the global batch.");
}

namespace {

struct Ramp {
  std::int64_t first, increment, samples;
};

std::vector<BrokenRule> broken_ramp(const std::vector<std::int64_t>& r, std::int64_t global) {
  constexpr const char* key = "rampup_batch_size";
  const auto broken = [&](std::string message, const char* advice) {
    return std::vector<BrokenRule>{{key, std::move(message), advice, "B3"}};
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
    return broken(text("rampup_batch_size: the way from ", first, " to ", global, " is not in strides of ", increment),
                  "choose an increment that divides it");
  if (first == global || samples == 0)
    return broken(first == global ? text("rampup_batch_size begins with the full size ", global)
                                  : std::string("rampup_batch_size is over after 0 samples"),
                  "leave it out");
  return {};
}

}  // namespace

std::vector<BrokenRule> broken_rules(const BatchRampOptions& o, const BatchSizes& sizes) {
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
  const auto broken = broken_rules(o, sizes);
  if (!broken.empty()) throw ConfigError(text("batch sizes: ", broken[0].message, "; ", broken[0].suggestion));
  if (!o.rampup_batch_size) return;
  first_ = (*o.rampup_batch_size)[0];
  increment_ = (*o.rampup_batch_size)[1];
  ramp_samples_ = (*o.rampup_batch_size)[2];
}

StepSize BatchPlan::size_of(std::int64_t nominal) const {
  const auto stride = sizes_.micro * sizes_.ranks;
  return {nominal / stride, nominal, decrease_ ? nominal / stride * stride : nominal};
}

StepSize BatchPlan::planned(std::int64_t consumed) const {
  if (!grows() || consumed > ramp_samples_) return full();
  const auto strides = static_cast<double>((sizes_.global - first_) / increment_);
  const auto samples_per_stride = static_cast<double>(ramp_samples_) / strides;
  const auto done = static_cast<std::int64_t>(static_cast<double>(consumed) / samples_per_stride);
  return size_of(first_ + done * increment_);
}

StepSize BatchPlan::at(std::int64_t consumed) const {
  const auto size = planned(consumed);
  if (size.micro_batches > 0 && size.micro_batches * sizes_.micro * sizes_.ranks == size.samples) return size;
  throw ConfigError(text("batch sizes: after ", consumed, " samples the global batch is ", size.nominal,
                         ", which is not a multiple of batch_size ", sizes_.micro, " on ", sizes_.ranks,
                         " ranks; change rampup_batch_size, or give decrease_batch_size_if_needed"));
}

std::int64_t BatchPlan::steps_of(std::int64_t samples) const {
  std::int64_t consumed = 0, steps = 0;
  while (grows() && consumed <= ramp_samples_ && consumed <= samples) {
    consumed += planned(consumed).nominal;
    ++steps;
  }
  if (consumed < samples) steps += (samples - consumed) / sizes_.global;
  return steps;
}

}  // namespace tessera
