#include "framework/schedule/optimizer_schedule.h"

#include <algorithm>
#include <cmath>

#include "framework/base/number_text.h"

namespace tessera::schedule {
namespace {

/// Compares lengths with a tolerance, because lengths computed as fractions of other lengths may differ by rounding.
bool same_length(double one, double other) {
  constexpr double rounding = 1e-12;
  return std::abs(one - other) <= rounding * std::max(std::abs(one), std::abs(other));
}

/// Collects the differences between recipe and checkpoint, one line each.
class Differences {
 public:
  explicit Differences(const ScheduleKeys& keys) : keys_(keys) {}

  void number(const std::string& key, const char* what, double ours, double saved) {
    if (ours == saved) return;
    const auto [here, there] = short_numbers(ours, saved);
    add(text(key, ": ", what, " is ", here, " in the recipe and ", there, " in the checkpoint"));
  }
  void word(const std::string& key, const char* what, const std::string& ours, const std::string& saved) {
    if (ours != saved) add(text(key, ": ", what, " is ", ours, " in the recipe and ", saved, " in the checkpoint"));
  }
  /// `ours` and `saved` are in samples; the message gives them in the unit of the recipe.
  void length(const std::string& key, const char* what, double ours, double saved) {
    if (same_length(ours, saved)) return;
    const auto [here, there] = short_numbers(ours / keys_.samples_per_unit, saved / keys_.samples_per_unit);
    add(text(key, ": ", what, " ends after ", here, " ", keys_.unit, "s in the recipe and after ", there, " ",
             keys_.unit, "s in the checkpoint"));
    lengths_ = true;
  }

  /// Throws ConfigError with all of them when there are any.
  void must_be_none() const {
    if (lines_.empty()) return;
    std::string message = "the recipe's schedule is not that of the checkpoint:";
    for (const auto& line : lines_) message += "\n  " + line;
    if (lengths_ && keys_.samples_per_unit > 1)
      message += text("\n  (a step of this recipe has ", short_number(keys_.samples_per_unit), " samples)");
    throw ConfigError(message +
                      "\nto resume with the checkpoint's schedule, give --set "
                      "optimizer_config.use_checkpoint_opt_param_scheduler=true\n"
                      "to resume with the recipe's, give --set optimizer_config.override_opt_param_scheduler=true");
  }

 private:
  void add(const std::string& line) {
    if (std::find(lines_.begin(), lines_.end(), line) == lines_.end()) lines_.push_back(line);
  }

  const ScheduleKeys& keys_;
  std::vector<std::string> lines_;
  bool lengths_ = false;
};

Differences differences(const ScheduleState& ours, const ScheduleState& saved, const ScheduleKeys& keys) {
  const std::string o = "optimizer_config.";
  const bool constant = ours.wd_incr_style == "constant" && saved.wd_incr_style == "constant";
  const auto end_of_decay = [&](const char* which) { return o + (constant ? "weight_decay" : which); };
  Differences out(keys);
  out.number(o + "learning_rate", "the learning rate", ours.max_lr, saved.max_lr);
  out.number(o + "min_lr", "the minimum learning rate", ours.min_lr, saved.min_lr);
  out.word(o + "lr_decay_style", "the decay style", ours.lr_decay_style, saved.lr_decay_style);
  out.length(keys.decay, "the decay of the learning rate", ours.lr_decay_steps, saved.lr_decay_steps);
  const bool follows = keys.warmup_is_fraction && same_length(ours.lr_warmup_steps * saved.lr_decay_steps,
                                                              saved.lr_warmup_steps * ours.lr_decay_steps);
  out.length(follows ? keys.decay : keys.warmup, follows ? "the warm-up, a fraction of the decay," : "the warm-up",
             ours.lr_warmup_steps, saved.lr_warmup_steps);
  out.word(o + "weight_decay_incr_style", "the growth of weight decay", ours.wd_incr_style, saved.wd_incr_style);
  out.number(end_of_decay("start_weight_decay"), constant ? "weight decay" : "the first weight decay", ours.start_wd,
             saved.start_wd);
  out.number(end_of_decay("end_weight_decay"), constant ? "weight decay" : "the last weight decay", ours.end_wd,
             saved.end_wd);
  out.length(keys.length, "the growth of weight decay", static_cast<double>(ours.wd_incr_steps),
             static_cast<double>(saved.wd_incr_steps));
  return out;
}

std::string word_of(WeightDecayStyle style) { return options::OptionType<WeightDecayStyle>::write(style).scalar; }

WeightDecayStyle style_of(const std::string& word) {
  WeightDecayStyle style{};
  if (!options::OptionType<WeightDecayStyle>::read(options::Value::of(word, {}), style))
    throw ConfigError(text("schedule: the checkpoint has weight_decay_incr_style '", word,
                           "', which is not known; constant, linear and cosine are"));
  return style;
}

}  // namespace

void describe(options::Schema<ScheduleResumeOptions>& s) {
  using O = ScheduleResumeOptions;
  s.when_changed(options::Change::silent);
  s.option("override_opt_param_scheduler", &O::override_opt_param_scheduler,
           "On resume, use the schedule of this recipe instead of the checkpoint's.")
      .must(
          "O4", [](const O& o) { return !o.override_opt_param_scheduler || !o.use_checkpoint_opt_param_scheduler; },
          [](const O&) { return "override_opt_param_scheduler and use_checkpoint_opt_param_scheduler are both true"; },
          "keep one of the two", {"use_checkpoint_opt_param_scheduler"});
  s.option("use_checkpoint_opt_param_scheduler", &O::use_checkpoint_opt_param_scheduler,
           "On resume, use the schedule of the checkpoint instead of this recipe's.");
}

OptimizerSchedule::OptimizerSchedule(LearningRate rate, WeightDecay decay, std::string style, DecayMaker make_decay,
                                     ScheduleKeys keys)
    : rate_(std::move(rate)),
      decay_(decay),
      style_(std::move(style)),
      make_decay_(std::move(make_decay)),
      keys_(std::move(keys)) {
  advance(0);
}

void OptimizerSchedule::advance(std::int64_t samples) {
  samples_ += samples;
  next_weight_decay_ = decay_.at(samples_);
}

ScheduleState OptimizerSchedule::state() const {
  const auto& rate = rate_.shape();
  const auto& decay = decay_.shape();
  return {.max_lr = rate.highest,
          .min_lr = rate.lowest,
          .lr_warmup_steps = rate.warmup,
          .lr_decay_steps = rate.decay,
          .lr_decay_style = style_,
          .num_steps = samples_,
          .start_wd = decay.start,
          .end_wd = decay.end,
          .wd_incr_steps = decay.samples,
          .wd_incr_style = word_of(decay.style)};
}

void OptimizerSchedule::restore(const ScheduleState& saved, const ScheduleResumeOptions& options) {
  const auto ours = state();
  if (!options.override_opt_param_scheduler && !options.use_checkpoint_opt_param_scheduler)
    differences(ours, saved, keys_).must_be_none();
  const auto& chosen = options.override_opt_param_scheduler ? ours : saved;
  const RateShape rate{.init = rate_.shape().init,
                       .highest = chosen.max_lr,
                       .lowest = chosen.min_lr,
                       .warmup = chosen.lr_warmup_steps,
                       .decay = chosen.lr_decay_steps};
  rate_.reshape(rate, chosen.lr_decay_style == style_ ? nullptr : make_decay_(chosen.lr_decay_style));
  style_ = chosen.lr_decay_style;
  // Called before the weight decay is replaced, because as in Megatron-LM the first step after a restore uses the
  // recipe's weight decay.
  advance(saved.num_steps - samples_);
  decay_ = WeightDecay({chosen.start_wd, chosen.end_wd, chosen.wd_incr_steps, style_of(chosen.wd_incr_style)});
}

OptimizerSchedule::DecayMaker decay_maker(const DecayRegistry& registry, const RunLength& run) {
  return [registry, run](const std::string& style) {
    // The style goes through the registry like an option of a recipe, so that its aliases work and an unknown name gets
    // the same error.
    options::Value recipe;
    recipe.set("optimizer_config.lr_decay_style", options::Value::of(style, {"checkpoint", 0, "", 1}));
    options::Report report;
    options::Group group(recipe, "optimizer_config", report);
    const auto choice = registry.read(group);
    report.must_be_good();
    return choice.make(run);
  };
}

}  // namespace tessera::schedule
