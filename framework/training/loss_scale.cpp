#include "framework/training/loss_scale.h"

#include <algorithm>

namespace tessera {

void describe(Schema<LossScaleOptions>& s) {
  using O = LossScaleOptions;
  s.option("loss_scale", &O::loss_scale, "Constant scale of the loss; null: with fp16 it adapts, else there is none.")
      .above(0);
  s.option("loss_scale_value", &O::loss_scale_value, "First scale when it adapts.")
      .above(0)
      .alias("initial_loss_scale");
  s.option("min_loss_scale", &O::min_loss_scale, "An adapting scale does not fall below.").above(0);
  s.option("loss_scale_window", &O::loss_scale_window, "Good steps in a row before an adapting scale grows.")
      .above(0)
      .unit("steps");
  s.option("loss_scale_factor", &O::loss_scale_factor, "What an adapting scale is multiplied or divided by.").above(1);
  s.option("hysteresis", &O::hysteresis, "Overflows after a growth before an adapting scale falls.").above(0);
}

LossScaler::LossScaler(const LossScaleOptions& o, bool fp16) {
  if (o.loss_scale) {
    kind_ = Kind::constant;
    state_.scale = static_cast<float>(*o.loss_scale);
    return;
  }
  if (o.min_loss_scale > o.loss_scale_value || o.loss_scale_window <= 0 || o.hysteresis <= 0)
    throw ConfigError(text("loss scale: it begins with ", o.loss_scale_value, ", shall not fall below ",
                           o.min_loss_scale, ", has a window of ", o.loss_scale_window, " and a hysteresis of ",
                           o.hysteresis,
                           "; min_loss_scale is at most loss_scale_value, window and hysteresis are above 0"));
  if (!fp16) return;
  kind_ = Kind::dynamic;
  state_ = {static_cast<float>(o.loss_scale_value), 0, o.hysteresis};
  minimum_ = static_cast<float>(o.min_loss_scale);
  growth_ = static_cast<float>(o.loss_scale_factor);
  backoff_ = static_cast<float>(1 / o.loss_scale_factor);
  window_ = o.loss_scale_window;
  hysteresis_ = o.hysteresis;
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

void LossScaler::restore(const LossScaleState& state) {
  if (dynamic()) state_ = state;
}

}  // namespace tessera
