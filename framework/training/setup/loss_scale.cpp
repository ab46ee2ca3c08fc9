#include "framework/training/setup/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/options/limits.h"

namespace tessera::training {
namespace {

constexpr double most_scale = 0x1p127;  // the largest power of two in fp32

}  // namespace

void describe(options::Schema<LossScaleOptions>& s) {
  using O = LossScaleOptions;
  s.when_changed(options::Change::told);
  s.option("loss_scale", &O::loss_scale, "Constant loss scale; null or 0: dynamic with fp16, else none.")
      .at_least(0)
      .at_most(most_scale);
  s.option("loss_scale_value", &O::loss_scale_value, "Initial dynamic loss scale.")
      .above(0)
      .at_most(most_scale)
      .alias("initial_loss_scale")
      .otherwise([](const O& o) { return o.initial(); }, "2^32");
  s.option("min_loss_scale", &O::min_loss_scale, "Minimum dynamic loss scale.").above(0).at_most(most_scale);
  s.option("loss_scale_window", &O::loss_scale_window,
           "Number of consecutive steps without overflow before the dynamic loss scale grows.")
      .above(0)
      .at_most(static_cast<double>(options::most_steps))
      .unit("steps")
      .otherwise([](const O& o) { return o.window(); }, "1000");
  s.option("loss_scale_factor", &O::loss_scale_factor, "Growth and backoff factor of the dynamic loss scale.")
      .above(1)
      .at_most(65536)
      .otherwise([](const O& o) { return o.factor(); }, "2")
      .no_flag("it is 2 in Megatron-LM");
  s.option("hysteresis", &O::hysteresis, "Number of overflows before the dynamic loss scale is reduced.")
      .above(0)
      .at_most(1000000000)
      .otherwise([](const O& o) { return o.overflows(); }, "2");
}

LossScaler::LossScaler(const LossScaleOptions& o, bool fp16) {
  if (o.loss_scale.value_or(0) > 0) {
    kind_ = Kind::constant;
    state_.scale = first_.scale = static_cast<float>(*o.loss_scale);
    return;
  }
  if (!fp16) return;
  const double first = o.initial(), factor = o.factor();
  window_ = o.window();
  hysteresis_ = o.overflows();
  const bool is_scale =
      o.min_loss_scale > 0 && o.min_loss_scale <= first && factor > 1 && window_ > 0 && hysteresis_ > 0;
  if (!is_scale)
    throw ConfigError(text("loss scale: loss_scale_value is ", first, ", min_loss_scale ", o.min_loss_scale,
                           ", loss_scale_factor ", factor, ", loss_scale_window ", window_, ", hysteresis ",
                           hysteresis_,
                           "; min_loss_scale is above 0 and at most loss_scale_value, loss_scale_factor above 1, "
                           "loss_scale_window and hysteresis above 0"));
  kind_ = Kind::dynamic;
  state_ = first_ = {static_cast<float>(first), 0, hysteresis_};
  minimum_ = static_cast<float>(o.min_loss_scale);
  growth_ = static_cast<float>(factor);
  backoff_ = static_cast<float>(1 / factor);
}

void LossScaler::update(bool overflow) {
  if (!dynamic()) return;
  if (overflow) {
    state_.growth_tracker = 0;
    if (--state_.hysteresis_tracker <= 0) state_.scale = std::max(state_.scale * backoff_, minimum_);
    return;
  }
  if (static_cast<double>(++state_.growth_tracker) < window_) return;  // a resumed run may have a smaller window
  state_.growth_tracker = 0;
  state_.hysteresis_tracker = hysteresis_;
  state_.scale *= growth_;
}

double LossScaler::inverse() const {
  const double exact = 1 / static_cast<double>(state_.scale);
  if (exact >= static_cast<double>(std::numeric_limits<float>::min()))
    return static_cast<double>(static_cast<float>(exact));
  constexpr double smallest = 0x1p-149;  // of fp32, whose denormal numbers are multiples of it
  return std::nearbyint(exact / smallest) * smallest;
}

void LossScaler::restore(const checkpoint::LossScaleState& state) {
  if (dynamic()) state_ = state;
}

}  // namespace tessera::training
