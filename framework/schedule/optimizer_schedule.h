#pragma once

#include <functional>

#include "framework/schedule/schedule.h"

namespace tessera::schedule {

/// The state of the schedules in a checkpoint, with Megatron-LM's names. All lengths in samples, despite "steps".
struct ScheduleState {
  double max_lr = 0, min_lr = 0;
  double lr_warmup_steps = 0, lr_decay_steps = 0;
  std::string lr_decay_style;
  std::int64_t num_steps = 0;  ///< samples of the steps that changed weights
  double start_wd = 0, end_wd = 0;
  std::int64_t wd_incr_steps = 0;
  std::string wd_incr_style;
};

/// Calls `visit(name, field)` for every field of a ScheduleState; the names are those of checkpoints, and
/// Megatron-LM's.
template <class State, class Visit>
void visit_fields(State& s, Visit visit) {
  visit("max_lr", s.max_lr);
  visit("min_lr", s.min_lr);
  visit("lr_warmup_steps", s.lr_warmup_steps);
  visit("lr_decay_steps", s.lr_decay_steps);
  visit("lr_decay_style", s.lr_decay_style);
  visit("num_steps", s.num_steps);
  visit("start_wd", s.start_wd);
  visit("end_wd", s.end_wd);
  visit("wd_incr_steps", s.wd_incr_steps);
  visit("wd_incr_style", s.wd_incr_style);
}

/// For messages: the keys of the recipe from which the numbers of a schedule come, and the unit of lengths there.
struct ScheduleKeys {
  std::string warmup = "optimizer_config.lr_warmup_iters";
  std::string decay = "training_config.training_iters";   ///< where the learning rate's decay ends
  std::string length = "training_config.training_iters";  ///< length of the run, where weight decay's growth ends
  std::string unit = "step";                              ///< or "sample"
  double samples_per_unit = 1;
  bool warmup_is_fraction = false;  ///< of the decay
};

/// Options of optimizer_config: which schedule a resumed run uses if those of recipe and checkpoint differ. With
/// neither option a difference is an error.
struct ScheduleResumeOptions {
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};
/// Declares the options.
void describe(options::Schema<ScheduleResumeOptions>& s);

/// Learning rate and weight decay of a run, and the current position. The only class of this component with a state: it
/// counts the samples of steps that changed weights, so a step that is skipped because of an overflow does not advance
/// it. Source: Megatron-LM, OptimizerParamScheduler.
class OptimizerSchedule {
 public:
  /// Creates a decay by the name of its style, with default options; throws ConfigError if it cannot.
  using DecayMaker = std::function<std::unique_ptr<Decay>(const std::string& style)>;

  /// `style` is the name of the decay of `rate`.
  OptimizerSchedule(LearningRate rate, WeightDecay decay, std::string style, DecayMaker make_decay,
                    ScheduleKeys keys = {});

  /// Records a step that consumed `samples` and changed the weights.
  void advance(std::int64_t samples);

  /// Learning rate of the next step.
  double learning_rate() const { return rate_.at(samples_); }
  /// The same for parameters with their own maximum and minimum.
  double learning_rate(double highest, double lowest) const { return rate_.at(samples_, highest, lowest); }
  /// Weight decay of the next step, for parameters that have weight decay.
  double weight_decay() const { return next_weight_decay_; }
  /// Samples of all steps that changed weights.
  std::int64_t samples() const { return samples_; }

  const RateShape& rate_shape() const { return rate_.shape(); }
  /// What a checkpoint stores.
  ScheduleState state() const;
  /// Resumes from a checkpoint. Fields that differ are taken from the checkpoint or from the recipe, as `options` say;
  /// with neither option a difference is a ConfigError that names, for every difference, the key of the recipe and both
  /// values in its unit. The length of WSD's decay phase is not compared, and the first step after a restore uses the
  /// recipe's weight decay; both as in Megatron-LM.
  void restore(const ScheduleState& saved, const ScheduleResumeOptions& options);

 private:
  LearningRate rate_;
  WeightDecay decay_;
  std::string style_;
  DecayMaker make_decay_;
  ScheduleKeys keys_;
  std::int64_t samples_ = 0;
  double next_weight_decay_ = 0;
};

/// Creates decays by name from a registry.
OptimizerSchedule::DecayMaker decay_maker(const DecayRegistry& registry, const RunLength& run);

}  // namespace tessera::schedule
