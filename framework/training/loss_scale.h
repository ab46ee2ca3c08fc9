#pragma once

#include <cstdint>
#include <optional>

#include "framework/checkpoint/progress.h"
#include "framework/options/schema.h"

namespace tessera::training {

/// training_config: how the loss is scaled so that small gradients survive 16 bits.
struct LossScaleOptions {
  std::optional<double> loss_scale;
  std::optional<double> loss_scale_value;
  double min_loss_scale = 1;
  std::optional<double> loss_scale_window;
  std::optional<double> loss_scale_factor;
  std::optional<std::int64_t> hysteresis;

  // Of a dynamic scale, with Megatron-LM's defaults.
  double initial() const { return loss_scale_value.value_or(4294967296); }
  double window() const { return loss_scale_window.value_or(1000); }
  double factor() const { return loss_scale_factor.value_or(2); }
  std::int64_t overflows() const { return hysteresis.value_or(2); }
};
void describe(options::Schema<LossScaleOptions>& s);

/// The factor on the loss before the backward pass, and how it follows overflows. A value of a few numbers.
///
/// A dynamic scale falls when `hysteresis` overflows were found since it last grew, and then at every further one; it
/// grows after `loss_scale_window` good steps in a row. fp32 arithmetic as Megatron-LM's grad_scaler.py, which is the
/// source.
class LossScaler {
 public:
  /// No scale and no skipped step.
  LossScaler() = default;
  /// The one that these options ask for: a constant one where loss_scale is given, else a dynamic one for fp16 and none
  /// for other types. Throws ConfigError when the numbers make no scale.
  LossScaler(const LossScaleOptions& options, bool fp16);

  /// Whether a step whose gradients overflow is skipped.
  bool skips() const { return kind_ != Kind::none; }
  bool dynamic() const { return kind_ == Kind::dynamic; }
  float scale() const { return state_.scale; }
  /// What unscales gradients: 1 / scale, rounded once to fp32. A double, because the threads that compute count fp32's
  /// denormal numbers as zero, and the inverse of the largest scales is one.
  double inverse() const;
  /// A step is through: whether its gradients had an infinity or NaN.
  void update(bool overflow);

  checkpoint::LossScaleState state() const { return state_; }
  /// Go on from a checkpoint. A constant scale stays as the recipe says.
  void restore(const checkpoint::LossScaleState& state);

 private:
  enum class Kind { none, constant, dynamic };
  Kind kind_ = Kind::none;
  checkpoint::LossScaleState state_;
  float minimum_ = 1, growth_ = 2, backoff_ = 0.5;
  double window_ = 0;
  std::int64_t hysteresis_ = 0;
};

}  // namespace tessera::training
