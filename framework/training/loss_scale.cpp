#include "framework/training/loss_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tessera {

void describe(Schema<LossScaleOptions>& s) {
  using O = LossScaleOptions;
  s.option("loss_scale", &O::loss_scale,
           "Constant scale of the loss; null or 0: with fp16 it adapts, else there is none.")
      .at_least(0);
  s.option("loss_scale_value", &O::loss_scale_value, "First scale when it adapts; null: 2^32.")
      .above(0)
      .alias("initial_loss_scale");
  s.option("min_loss_scale", &O::min_loss_scale, "An adapting scale does not fall below.").above(0);
  s.option("loss_scale_window", &O::loss_scale_window,
           "Good steps in a row before an adapting scale grows; null: 1000.")
      .above(0)
      .unit("steps");
  s.option("loss_scale_factor", &O::loss_scale_factor, "What an adapting scale is multiplied or divided by; null: 2.")
      .above(1);
  s.option("hysteresis", &O::hysteresis, "Overflows after a growth before an adapting scale falls; null: 2.").above(0);
}

LossScaler::LossScaler(const LossScaleOptions& o, bool fp16) {
  if (o.loss_scale.value_or(0) > 0) {
    kind_ = Kind::constant;
    state_.scale = static_cast<float>(*o.loss_scale);
    return;
  }
  const double first = o.loss_scale_value.value_or(4294967296), factor = o.loss_scale_factor.value_or(2);
  window_ = o.loss_scale_window.value_or(1000);
  hysteresis_ = o.hysteresis.value_or(2);
  if (o.min_loss_scale > first || window_ <= 0 || hysteresis_ <= 0)
    throw ConfigError(text("loss scale: it begins with ", first, ", shall not fall below ", o.min_loss_scale,
                           ", has a window of ", window_, " and a hysteresis of ", hysteresis_,
                           "; min_loss_scale is at most loss_scale_value, window and hysteresis are above 0"));
  if (!fp16) return;
  kind_ = Kind::dynamic;
  state_ = {static_cast<float>(first), 0, hysteresis_};
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
  if (static_cast<double>(++state_.growth_tracker) != window_) return;
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

void LossScaler::restore(const LossScaleState& state) {
  if (dynamic()) state_ = state;
}

}  // namespace tessera
