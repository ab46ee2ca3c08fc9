#include "framework/schedule/optimizer_schedule.h"

namespace tessera {
namespace {

/// Chooses between recipe and checkpoint, field by field.
class Merger {
 public:
  explicit Merger(const ScheduleResumeOptions& options) : o_(options) {}

  template <class T>
  T merged(const char* name, const T& ours, const T& saved) const {
    if (o_.override_opt_param_scheduler || ours == saved) return ours;
    if (o_.use_checkpoint_opt_param_scheduler) return saved;
    throw ConfigError(text("schedule: ", name, " is ", OptionType<T>::write(ours), " in the recipe and ",
                           OptionType<T>::write(saved),
                           " in the checkpoint; give optimizer_config.override_opt_param_scheduler to follow the "
                           "recipe, or use_checkpoint_opt_param_scheduler to follow the checkpoint"));
  }

 private:
  ScheduleResumeOptions o_;
};

std::string word_of(WeightDecayStyle style) { return OptionType<WeightDecayStyle>::write(style).scalar; }

WeightDecayStyle style_of(const std::string& word) {
  WeightDecayStyle style{};
  if (!OptionType<WeightDecayStyle>::read(Value::of(word, {}), style))
    throw ConfigError(text("schedule: the checkpoint names a weight decay incr style '", word, "' that is not known"));
  return style;
}

}  // namespace

void describe(Schema<ScheduleResumeOptions>& s) {
  using O = ScheduleResumeOptions;
  s.option("override_opt_param_scheduler", &O::override_opt_param_scheduler,
           "When a resumed run finds other schedules in its checkpoint, follow this recipe's.");
  s.option("use_checkpoint_opt_param_scheduler", &O::use_checkpoint_opt_param_scheduler,
           "When a resumed run finds other schedules in its checkpoint, follow the checkpoint's.");
}

std::vector<BrokenRule> broken_rules(const ScheduleResumeOptions& o) {
  if (!o.override_opt_param_scheduler || !o.use_checkpoint_opt_param_scheduler) return {};
  return {{"override_opt_param_scheduler", "both override_opt_param_scheduler and use_checkpoint_opt_param_scheduler",
           "keep one of the two", "O4"}};
}

OptimizerSchedule::OptimizerSchedule(LearningRate rate, WeightDecay decay, std::string style, DecayMaker make_decay)
    : rate_(std::move(rate)), decay_(decay), style_(std::move(style)), make_decay_(std::move(make_decay)) {
  advance(0);
}

void OptimizerSchedule::advance(std::int64_t samples) {
  samples_ += samples;
  next_weight_decay_ = decay_.at(samples_);
}

ScheduleState OptimizerSchedule::state() const {
  const auto& rate = rate_.shape();
  const auto& decay = decay_.shape();
  return {rate.highest, rate.lowest, rate.warmup, rate.decay,    style_,
          samples_,     decay.start, decay.end,   decay.samples, word_of(decay.style)};
}

void OptimizerSchedule::restore(const ScheduleState& saved, const ScheduleResumeOptions& options) {
  const Merger from(options);
  const auto ours = state();
  auto rate = rate_.shape();
  rate.highest = from.merged("learning rate", ours.max_lr, saved.max_lr);
  rate.lowest = from.merged("minimum learning rate", ours.min_lr, saved.min_lr);
  rate.warmup = from.merged("warmup iterations", ours.lr_warmup_steps, saved.lr_warmup_steps);
  rate.decay = from.merged("total number of iterations", ours.lr_decay_steps, saved.lr_decay_steps);
  const auto style = from.merged("learning rate decay style", ours.lr_decay_style, saved.lr_decay_style);
  rate_.reshape(rate, style == style_ ? nullptr : make_decay_(style));
  style_ = style;
  advance(saved.num_steps - samples_);

  WeightDecayShape decay;
  decay.start = from.merged("start weight decay", ours.start_wd, saved.start_wd);
  decay.end = from.merged("end weight decay", ours.end_wd, saved.end_wd);
  decay.samples = from.merged("total number of weight decay iterations", ours.wd_incr_steps, saved.wd_incr_steps);
  decay.style = style_of(from.merged("weight decay incr style", ours.wd_incr_style, saved.wd_incr_style));
  decay_ = WeightDecay(decay);
}

OptimizerSchedule::DecayMaker decay_maker(const DecayRegistry& shelf, const RunLength& run) {
  return [shelf, run](const std::string& style) {
    Value recipe;
    recipe.set("optimizer_config.lr_decay_style", Value::of(style, {"checkpoint", 0, "", 1}));
    Report report;
    Group group(recipe, "optimizer_config", report);
    const auto choice = shelf.read(group);
    report.must_be_good();
    return choice.make(run);
  };
}

}  // namespace tessera
