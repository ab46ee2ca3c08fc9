#include <cmath>
#include <numbers>

#include "framework/options/limits.h"
#include "framework/schedule/schedule.h"

namespace tessera::schedule {

namespace {

using O = WeightDecayOptions;
constexpr auto grows = [](const O& o) { return o.weight_decay_incr_style != WeightDecayStyle::constant; };
constexpr const char* is_constant = "`weight_decay_incr_style` is constant";

std::string keeps_constant(const O& o) {
  return text("weight_decay_incr_style is constant, which keeps weight_decay ", o.weight_decay, " for the whole run");
}

}  // namespace

void describe(options::Schema<WeightDecayOptions>& s) {
  s.when_changed(options::Change::schedule);
  s.option("weight_decay", &O::weight_decay,
           "Weight decay coefficient, multiplied by the learning rate; biases and norm weights do not decay.")
      .at_least(0)
      .at_most(options::most_rate)
      .matters_when([](const O& o) { return !grows(o); }, "`weight_decay_incr_style` is not constant");
  s.option("start_weight_decay", &O::start_weight_decay, "Initial weight decay.")
      .at_least(0)
      .at_most(options::most_rate)
      .matters_when(grows, is_constant)
      .must(
          "O2", [](const O& o) { return grows(o) || o.start_weight_decay.value_or(o.weight_decay) == o.weight_decay; },
          [](const O& o) { return keeps_constant(o); },
          "leave start_weight_decay and end_weight_decay out, or choose linear or cosine",
          {"weight_decay_incr_style", "weight_decay"});
  s.option("end_weight_decay", &O::end_weight_decay, "Final weight decay.")
      .at_least(0)
      .at_most(options::most_rate)
      .matters_when(grows, is_constant)
      .must(
          "O2", [](const O& o) { return grows(o) || o.end_weight_decay.value_or(o.weight_decay) == o.weight_decay; },
          [](const O& o) { return keeps_constant(o); },
          "leave start_weight_decay and end_weight_decay out, or choose linear or cosine",
          {"weight_decay_incr_style", "weight_decay"})
      .must(
          "O2",
          [](const O& o) {
            return !grows(o) || !o.start_weight_decay || !o.end_weight_decay ||
                   *o.start_weight_decay <= *o.end_weight_decay;
          },
          [](const O& o) {
            return text("end_weight_decay ", *o.end_weight_decay, " is below start_weight_decay ",
                        *o.start_weight_decay, "; weight decay can only grow");
          },
          "exchange them", {"start_weight_decay", "weight_decay_incr_style"});
  s.option("weight_decay_incr_style", &O::weight_decay_incr_style,
           "Schedule from `start_weight_decay` to `end_weight_decay`; constant: `weight_decay` throughout.")
      .must(
          "O2", [](const O& o) { return !grows(o) || (o.start_weight_decay && o.end_weight_decay); },
          [](const O& o) {
            return text("weight_decay_incr_style ",
                        options::OptionType<WeightDecayStyle>::write(o.weight_decay_incr_style),
                        " requires start_weight_decay and end_weight_decay");
          },
          "give both", {"start_weight_decay", "end_weight_decay"});
}

WeightDecay::WeightDecay(const WeightDecayOptions& o, const RunLength& run)
    : shape_{o.weight_decay, o.weight_decay, run.samples, o.weight_decay_incr_style} {
  options::refuse("weight decay", options::broken_rules(o));
  if (shape_.style == WeightDecayStyle::constant) return;
  shape_.start = *o.start_weight_decay;
  shape_.end = *o.end_weight_decay;
}

double WeightDecay::at(std::int64_t consumed_samples) const {
  if (shape_.style == WeightDecayStyle::constant || consumed_samples > shape_.samples) return shape_.end;
  const double done = static_cast<double>(consumed_samples) / static_cast<double>(shape_.samples);
  const bool linear = shape_.style == WeightDecayStyle::linear;
  const double grown = linear ? done : 0.5 * (std::cos(std::numbers::pi * (1 - done)) + 1);
  return shape_.start + grown * (shape_.end - shape_.start);
}

}  // namespace tessera::schedule
