#pragma once

#include <functional>

#include "framework/schedule/schedule.h"

namespace tessera {

/// What a checkpoint keeps of the schedules; Megatron-LM's names. All lengths in samples.
struct ScheduleState {
  double max_lr = 0, min_lr = 0;
  double lr_warmup_steps = 0, lr_decay_steps = 0;
  std::string lr_decay_style;
  std::int64_t num_steps = 0;  ///< samples of the steps that changed weights
  double start_wd = 0, end_wd = 0;
  std::int64_t wd_incr_steps = 0;
  std::string wd_incr_style;
};

/// Whose schedules a resumed run follows when the recipe and the checkpoint differ; in optimizer_config. Neither: a
/// difference is an error.
struct ScheduleResumeOptions {
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};
void describe(Schema<ScheduleResumeOptions>& s);
/// Both at once are none.
std::vector<BrokenRule> broken_rules(const ScheduleResumeOptions& options);

/// Learning rate and weight decay of a run, and how far it is with them. The only thing in this room with a state: it
/// counts the samples of steps that changed weights, so a step skipped for an overflow leaves it where it is.
/// Source: Megatron-LM, OptimizerParamScheduler.
class OptimizerSchedule {
 public:
  /// Makes a decay from the name of its style, with default options; throws ConfigError when it cannot.
  using DecayMaker = std::function<std::unique_ptr<Decay>(const std::string& style)>;

  /// `style` is the name of `rate`'s decay.
  OptimizerSchedule(LearningRate rate, WeightDecay decay, std::string style, DecayMaker make_decay);

  /// A step that consumed so many samples changed the weights.
  void advance(std::int64_t samples);

  /// Of the next step.
  double learning_rate() const { return rate_.at(samples_); }
  /// Of the next step, for parameters whose rate goes from `highest` to `lowest`.
  double learning_rate(double highest, double lowest) const { return rate_.at(samples_, highest, lowest); }
  /// Of the next step, for parameters that decay.
  double weight_decay() const { return next_weight_decay_; }
  std::int64_t samples() const { return samples_; }

  const RateShape& rate_shape() const { return rate_.shape(); }
  ScheduleState state() const;
  /// Go on from a checkpoint. What differs is taken from there, or from here, as `options` say; without them it is a
  /// ConfigError that names the field and both values. The length of WSD's fall is not compared, as in Megatron-LM;
  /// and as there the first step after a restore still decays as the recipe says.
  void restore(const ScheduleState& saved, const ScheduleResumeOptions& options);

 private:
  LearningRate rate_;
  WeightDecay decay_;
  std::string style_;
  DecayMaker make_decay_;
  std::int64_t samples_ = 0;
  double next_weight_decay_ = 0;
};

/// Makes decays from this shelf by name.
OptimizerSchedule::DecayMaker decay_maker(const DecayRegistry& shelf, const RunLength& run);

}  // namespace tessera
