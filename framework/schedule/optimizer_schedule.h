#pragma once

#include <functional>

#include "framework/schedule/schedule.h"

namespace tessera::schedule {

/// The state of the schedules in a checkpoint, with Megatron-LM's names. All lengths are in samples, although their
/// names say "steps".
struct ScheduleState {
  double max_lr = 0, min_lr = 0;
  double lr_warmup_steps = 0, lr_decay_steps = 0;
  std::string lr_decay_style;
  std::int64_t num_steps = 0;  ///< samples consumed by steps that changed the weights
  double start_wd = 0, end_wd = 0;
  std::int64_t wd_incr_steps = 0;
  std::string wd_incr_style;
};

/// Calls `visit(name, field)` for every field of a ScheduleState; `name` is the name in checkpoints, which is also
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

/// For error messages: the recipe keys that the numbers of a schedule come from, and the unit of lengths in the recipe.
struct ScheduleKeys {
  std::string warmup = "optimizer_config.lr_warmup_iters";
  std::string decay = "training_config.training_iters";   ///< key of the end of the learning rate decay
  std::string length = "training_config.training_iters";  ///< key of the run's length (end of weight decay's growth)
  std::string unit = "step";                              ///< "step" or "sample"
  double samples_per_unit = 1;                            ///< samples in one `unit`
  bool warmup_is_fraction = false;                        ///< the warm-up is given as a fraction of the decay
};

/// Options of optimizer_config: which schedule a resumed run uses if recipe and checkpoint have different schedules. If
/// neither option is set, a difference is an error.
struct ScheduleResumeOptions {
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};
/// Declares the options.
void describe(options::Schema<ScheduleResumeOptions>& s);

/// Learning rate and weight decay of a run, and the current position in their schedules. The only class of this
/// component with mutable state: it counts the samples of steps that changed the weights, so a step that is skipped
/// because of an overflow does not advance the schedules. Source: Megatron-LM, OptimizerParamScheduler.
class OptimizerSchedule {
 public:
  /// Creates a decay by the name of its style, with default options; throws ConfigError if it cannot.
  using DecayMaker = std::function<std::unique_ptr<Decay>(const std::string& style)>;

  /// `style` is the name of the decay style of `rate`. `make_decay` creates the decay of another style when restore()
  /// takes the style from a checkpoint.
  OptimizerSchedule(LearningRate rate, WeightDecay decay, std::string style, DecayMaker make_decay,
                    ScheduleKeys keys = {});

  /// Records a step that consumed `samples` and changed the weights.
  void advance(std::int64_t samples);

  /// Learning rate of the next step.
  double learning_rate() const { return rate_.at(samples_); }
  /// Learning rate of the next step for parameters with their own maximum and minimum learning rate.
  double learning_rate(double highest, double lowest) const { return rate_.at(samples_, highest, lowest); }
  /// Weight decay of the next step, for parameters that have weight decay.
  double weight_decay() const { return next_weight_decay_; }
  /// Samples consumed by all steps that changed the weights.
  std::int64_t samples() const { return samples_; }

  const RateShape& rate_shape() const { return rate_.shape(); }
  /// The state to store in a checkpoint.
  ScheduleState state() const;
  /// Resumes from the state of a checkpoint. `options` decide whether fields that differ are taken from the checkpoint
  /// or from the recipe. If neither option is set, throws ConfigError if any field differs; the message names the
  /// recipe key and both values, in the unit of the recipe, of every difference. As in Megatron-LM, the length of WSD's
  /// decay phase is not compared, and the first step after a restore uses the recipe's weight decay.
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

/// A DecayMaker that creates decays by name from `registry`, for a run of length `run`.
OptimizerSchedule::DecayMaker decay_maker(const DecayRegistry& registry, const RunLength& run);

}  // namespace tessera::schedule
