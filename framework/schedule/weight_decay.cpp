#include <cmath>
#include <numbers>

#include "framework/options/limits.h"
#include "framework/schedule/schedule.h"

namespace tessera {

void describe(Schema<WeightDecayOptions>& s) {
  using O = WeightDecayOptions;
  s.option("weight_decay", &O::weight_decay,
           "Weight decay coefficient, multiplied by the learning rate; biases and norm weights do not decay.")
      .at_least(0)
      .at_most(most_rate);
  s.option("start_weight_decay", &O::start_weight_decay,
           "Initial weight decay; used unless `weight_decay_incr_style` is constant.")
      .at_least(0)
      .at_most(most_rate);
  s.option("end_weight_decay", &O::end_weight_decay,
           "Final weight decay; used unless `weight_decay_incr_style` is constant.")
      .at_least(0)
      .at_most(most_rate);
  s.option("weight_decay_incr_style", &O::weight_decay_incr_style,
           "Schedule from `start_weight_decay` to `end_weight_decay`; constant: `weight_decay` throughout.");
}

std::vector<BrokenRule> broken_rules(const WeightDecayOptions& o, const RunLength&) {
  const auto differs = [&](const std::optional<double>& v) { return v && *v != o.weight_decay; };
  if (o.weight_decay_incr_style == WeightDecayStyle::constant) {
    if (!differs(o.start_weight_decay) && !differs(o.end_weight_decay)) return {};
    return {{differs(o.start_weight_decay) ? "start_weight_decay" : "end_weight_decay",
             text("weight_decay_incr_style constant keeps weight_decay ", o.weight_decay, " from start to end"),
             "leave start_weight_decay and end_weight_decay out, or choose linear or cosine", "O2"}};
  }
  if (!o.start_weight_decay || !o.end_weight_decay)
    return {{"weight_decay_incr_style", "weight_decay_incr_style linear and cosine need both ends of the way",
             "give start_weight_decay and end_weight_decay", "O2"}};
  if (*o.start_weight_decay > *o.end_weight_decay)
    return {{"end_weight_decay",
             text("end_weight_decay ", *o.end_weight_decay, " is below start_weight_decay ", *o.start_weight_decay),
             "weight decay can only grow: exchange them", "O2"}};
  return {};
}

WeightDecay::WeightDecay(const WeightDecayOptions& o, const RunLength& run)
    : shape_{o.weight_decay, o.weight_decay, run.samples, o.weight_decay_incr_style} {
  const auto broken = broken_rules(o, run);
  if (!broken.empty()) throw ConfigError(text("weight decay: ", broken[0].message, "; ", broken[0].suggestion));
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

}  // namespace tessera
