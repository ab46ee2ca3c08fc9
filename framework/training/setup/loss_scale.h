#pragma once

#include <cstdint>
#include <optional>

#include "framework/checkpoint/progress.h"
#include "framework/options/schema.h"

namespace tessera::training {

/// Options of training_config for loss scaling, which keeps small gradients representable in 16 bits.
struct LossScaleOptions {
  std::optional<double> loss_scale;
  std::optional<double> loss_scale_value;
  double min_loss_scale = 1;
  std::optional<double> loss_scale_window;
  std::optional<double> loss_scale_factor;
  std::optional<std::int64_t> hysteresis;

  // Values of a dynamic scale, with Megatron-LM's defaults.
  double initial() const { return loss_scale_value.value_or(4294967296); }
  double window() const { return loss_scale_window.value_or(1000); }
  double factor() const { return loss_scale_factor.value_or(2); }
  std::int64_t overflows() const { return hysteresis.value_or(2); }
};
void describe(options::Schema<LossScaleOptions>& s);

/// The loss scale: the factor on the loss before the backward pass, and how it reacts to overflows. A value type.
///
/// A dynamic scale is reduced when `hysteresis` overflows have occurred since it last grew, and then at every further
/// overflow. It grows after `loss_scale_window` consecutive steps without overflow. Computed in fp32. Source:
/// Megatron-LM's grad_scaler.py.
class LossScaler {
 public:
  /// No loss scale; no step is skipped.
  LossScaler() = default;
  /// The scale that the options ask for: constant if loss_scale is given, else dynamic for fp16, else none. Throws
  /// ConfigError if the values of a dynamic scale are out of range.
  LossScaler(const LossScaleOptions& options, bool fp16);

  /// Whether a step whose gradients overflow is skipped.
  bool skips() const { return kind_ != Kind::none; }
  bool dynamic() const { return kind_ == Kind::dynamic; }
  float scale() const { return state_.scale; }
  /// Factor that unscales gradients: 1 / scale, rounded once to fp32. A double, because the computing threads treat
  /// subnormal fp32 numbers as zero, and the inverse of the largest scales is subnormal.
  double inverse() const;
  /// Call it after each step. `overflow`: its gradients contained an infinity or NaN.
  void update(bool overflow);

  /// As before the first step.
  void begin() { state_ = first_; }
  checkpoint::LossScaleState state() const { return state_; }
  /// Restores a dynamic scale from a checkpoint. A constant scale stays as in the recipe.
  void restore(const checkpoint::LossScaleState& state);

 private:
  enum class Kind { none, constant, dynamic };
  Kind kind_ = Kind::none;
  checkpoint::LossScaleState state_, first_;
  float minimum_ = 1, growth_ = 2, backoff_ = 0.5;
  double window_ = 0;
  std::int64_t hysteresis_ = 0;
};

}  // namespace tessera::training
