#include "framework/recipe/rules.h"

#include <algorithm>

#include "framework/base/checked.h"
#include "framework/data/dataset.h"
#include "framework/options/limits.h"
#include "framework/recipe/freezing.h"
#include "framework/recipe/lora_rules.h"

namespace tessera::recipe {
namespace {

/// Where `option` was written; for a default, the origin of its group or of the recipe.
options::Origin place(const Recipe& recipe, const std::string& option) {
  const auto* value = recipe.resolved.at(option);
  return value ? value->origin : options::Origin{};
}

/// Whether a problem with one of `options` was reported. A rule about them is then not checked, because its computation
/// may need valid values.
bool known_wrong(const options::Report& report, const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [&](const auto& option) { return report.concerns(option); });
}

}  // namespace

void tell(const Recipe& recipe, options::Report& report, const std::string& rule,
          const std::vector<std::string>& options, const std::string& message, const std::string& advice) {
  if (known_wrong(report, options)) return;
  auto at = place(recipe, options[0]);
  for (const auto& option : options)
    if (at.layer == 0) at = place(recipe, option);
  if (at.layer == 0) at = place(recipe, options[0].substr(0, options[0].find('.')));
  report.problem(at, options[0], message, advice, rule);
}

void tell(const Recipe& recipe, options::Report& report, const std::string& group, const options::Finding& finding,
          const std::vector<std::string>& others) {
  std::vector<std::string> options = {group + finding.option};
  options.insert(options.end(), others.begin(), others.end());
  tell(recipe, report, finding.rule, options, finding.message, finding.advice);
}

namespace {

/// A rule between options, and its message if it does not hold.
struct Rule {
  const char* name;                ///< "B7": its id in Megatron-LM's rules if it is one of them, see docs/rules.md
  std::vector<const char*> about;  ///< the options it reads; errors name the first
  bool (*holds)(const Recipe&);
  std::string (*message)(const Recipe&);  ///< what is wrong, with the given values
  const char* advice;
};

/// Rules of the length of the run and of its schedules.
std::vector<Rule> length_rules() {
  return {
      {"B7",
       {"training_config.training_iters", "dataset_config.train_samples", "training_config.epochs"},
       [](const Recipe& r) { return r.training.training_iters > 0 || r.training.epochs || r.batch.in_samples(); },
       [](const Recipe&) { return std::string("training_config.training_iters is missing"); },
       "give it in steps, or dataset_config.train_samples, or epochs"},
      {"B5",
       {"dataset_config.train_samples", "training_config.training_iters", "training_config.epochs"},
       [](const Recipe& r) { return !r.batch.in_samples() || (r.training.training_iters == 0 && !r.training.epochs); },
       [](const Recipe& r) {
         const auto& t = r.training;
         return text("more than one option gives the length of the run: train_samples ", *r.batch.train_samples,
                     t.training_iters != 0 ? text(", training_iters ", t.training_iters) : "",
                     t.epochs ? text(", epochs ", *t.epochs) : "");
       },
       "keep one of train_samples, training_iters and epochs"},
      {"B5",
       {"dataset_config.rampup_batch_size", "dataset_config.train_samples"},
       [](const Recipe& r) { return !r.ramp.rampup_batch_size || r.batch.in_samples(); },
       [](const Recipe&) { return std::string("rampup_batch_size needs a run whose length is given in samples"); },
       "give dataset_config.train_samples instead of training_iters"},
      {"B6",
       {"optimizer_config.lr_warmup_iters", "optimizer_config.lr_decay_iters", "dataset_config.train_samples"},
       [](const Recipe& r) {
         const auto& o = r.learning_rate;
         return !r.batch.in_samples() || (o.lr_warmup_iters == 0 && !o.lr_decay_iters);
       },
       [](const Recipe& r) {
         const auto& o = r.learning_rate;
         return text(o.lr_warmup_iters != 0 ? text("lr_warmup_iters is ", o.lr_warmup_iters)
                                            : text("lr_decay_iters is ", *o.lr_decay_iters),
                     ", in steps, but the length of the run is given in samples");
       },
       "give lr_warmup_samples and lr_decay_samples"},
      {"B5",
       {"optimizer_config.lr_warmup_samples", "optimizer_config.lr_decay_samples", "training_config.training_iters"},
       [](const Recipe& r) {
         const auto& o = r.learning_rate;
         return r.batch.in_samples() || (o.lr_warmup_samples == 0 && !o.lr_decay_samples);
       },
       [](const Recipe&) {
         return std::string("the run's length is given in steps, but lr_warmup_samples or lr_decay_samples in samples");
       },
       "give lr_warmup_iters and lr_decay_iters, or train_samples"},
  };
}

/// Rules of the sizes of a step and of the run.
std::vector<Rule> size_rules() {
  return {
      {"micro_batch_num",
       {"dataset_config.micro_batch_num", "dataset_config.global_batch_size", "dataset_config.batch_size"},
       [](const Recipe& r) {
         const auto& b = r.batch;
         return !b.global_batch_size || !b.micro_batch_num || *b.global_batch_size % b.batch_size != 0 ||
                // The remaining factor is the number of data-parallel ranks.
                *b.global_batch_size % (*b.micro_batch_num * b.batch_size) == 0;
       },
       [](const Recipe& r) {
         return text("micro_batch_num is ", *r.batch.micro_batch_num, ", but global_batch_size ",
                     *r.batch.global_batch_size, " in micro-batches of ", r.batch.batch_size, " makes ",
                     *r.batch.global_batch_size / r.batch.batch_size);
       },
       "give one of micro_batch_num and global_batch_size"},
      {"countable sizes",
       {"training_config.training_iters", "dataset_config.train_samples", "dataset_config.global_batch_size",
        "dataset_config.micro_batch_num", "dataset_config.batch_size", "model_config.seq_length",
        "training_config.eval_iters", "parallel_config.data_parallel_size"},
       [](const Recipe& r) { return uncountable(r, r.parallel.data_parallel_size.value_or(1)).empty(); },
       [](const Recipe& r) { return uncountable(r, r.parallel.data_parallel_size.value_or(1)); },
       "make one of them smaller"},
  };
}

/// Rules of what the run reads: a checkpoint, a tokenizer, data.
std::vector<Rule> input_rules() {
  return {
      {"C14",
       {"moe_config.moe_use_upcycling", "training_config.load_checkpoint"},
       [](const Recipe& r) { return !r.moe.moe_use_upcycling || r.experts() == 0 || r.training.load_checkpoint; },
       [](const Recipe&) { return std::string("moe_use_upcycling needs training_config.load_checkpoint"); },
       "give the checkpoint of a dense model"},
      {"QLoRA",
       {"lora_config.qlora", "training_config.load_checkpoint"},
       [](const Recipe& r) { return !r.lora.qlora || r.training.load_checkpoint; },
       [](const Recipe&) { return std::string("qlora is true, but load_checkpoint is null: nothing is quantised"); },
       "give the folder of a model of Hugging Face Transformers, or leave qlora out"},
      {"vocabulary",
       {"model_config.vocab_size", "dataset_config.tokenizer_type"},
       [](const Recipe& r) { return r.size.vocab_size || r.tokenizer.type != "none"; },
       [](const Recipe&) {
         return std::string("vocab_size is not given and cannot be derived, because tokenizer_type is none");
       },
       "give model_config.vocab_size, or choose a tokenizer"},
  };
}

/// Rules of the loss scale of 16-bit runs.
std::vector<Rule> loss_scale_rules() {
  return {
      {"MP9",
       {"training_config.min_loss_scale", "training_config.loss_scale_value", "training_config.loss_scale",
        "training_config.fp16"},
       [](const Recipe& r) {
         const auto& scale = r.loss_scale;
         return !r.half.fp16 || scale.loss_scale.value_or(0) > 0 || scale.min_loss_scale <= scale.initial();
       },
       [](const Recipe& r) {
         return text("min_loss_scale is ", r.loss_scale.min_loss_scale, ", above the initial loss scale ",
                     r.loss_scale.initial());
       },
       "lower min_loss_scale, or raise loss_scale_value"},
  };
}

const std::vector<Rule>& rules() {
  static const auto all = [] {
    auto rules = length_rules();
    for (const auto& part : {size_rules(), input_rules(), loss_scale_rules()})
      rules.insert(rules.end(), part.begin(), part.end());
    return rules;
  }();
  return all;
}

/// A size that one rank cannot divide into micro-batches is wrong for every number of ranks. Without global_batch_size
/// the sizes depend on the number of ranks, which check_ranks() knows.
void check_ramp(const Recipe& recipe, const schedule::BatchSizes& sizes, options::Report& report) {
  if (!recipe.ramp.rampup_batch_size || !recipe.batch.global_batch_size || !recipe.batch.train_samples) return;
  if (!schedule::broken_rules(recipe.ramp, sizes).empty()) return;
  if (const auto broken = schedule::BatchPlan(recipe.ramp, sizes).broken_step(*recipe.batch.train_samples))
    tell(recipe, report, "dataset_config.", *broken, {"dataset_config.batch_size"});
}

void check_learning_rate(const Recipe& recipe, const schedule::RunLength& length, options::Report& report) {
  const std::string group = "optimizer_config.";
  for (const auto& broken : schedule::broken_rules(recipe.learning_rate, length))
    tell(recipe, report, group, broken,
         {group + "learning_rate", group + "lr_decay_iters", "training_config.training_iters"});
}

/// That a profile is asked for but cannot begin.
void note_profile(const Recipe& recipe, options::Report& report) {
  const auto last = recipe.batch.in_samples() ? 0 : recipe.iterations();
  const auto first = recipe.profile.profile_step_start;
  if (!recipe.profile.profile || !report.good() || last == 0 || first <= last) return;
  const auto* start = recipe.resolved.at("training_config.profile_step_start");
  const auto* asked = recipe.resolved.at("training_config.profile");
  if (start != nullptr && asked != nullptr)
    report.note((start->origin.layer > 0 ? start : asked)->origin,
                text("nothing is profiled: profile_step_start is ", first, ", but the last iteration is ", last));
}

void check_schedules(const Recipe& recipe, options::Report& report) {
  const std::string data = "dataset_config.";
  for (const auto* length :
       {"training_config.training_iters", "dataset_config.batch_size", "dataset_config.micro_batch_num",
        "dataset_config.global_batch_size", "dataset_config.rampup_batch_size", "dataset_config.train_samples",
        "optimizer_config.lr_warmup_samples", "parallel_config.data_parallel_size"})
    if (report.concerns(length)) return;
  const auto ranks = recipe.parallel.data_parallel_size.value_or(1);
  if (!uncountable(recipe, ranks).empty()) return;
  for (const auto& broken : schedule::broken_rules(recipe.ramp, recipe.batch_sizes(ranks)))
    tell(recipe, report, data, broken, {data + "batch_size"});
  check_ramp(recipe, recipe.batch_sizes(ranks), report);
  check_steps(recipe, ranks, report);
  if (recipe.length().samples > 0) check_learning_rate(recipe, recipe.length(), report);
}

void check_precision(const Recipe& recipe, options::Report& report) {
  for (const auto& broken : model::broken_rules(recipe.half, recipe.precision))
    tell(recipe, report, "", broken, {"training_config.bf16", "training_config.fp16"});
}

void check_model(const Recipe& recipe, options::Report& report) {
  if (!recipe.architecture) return;
  const auto wrong = [&](const std::string& option) { return report.concerns(option); };
  for (const auto& broken : recipe.architecture->broken_rules(wrong))
    tell(recipe, report, "", broken.finding, broken.about);
}

/// Names of training_config.allow_changes that are no option, or one whose change is not refused.
void check_allowed_changes(const Recipe& recipe, options::Report& report) {
  const std::string own = "training_config.allow_changes";
  std::vector<std::string> known;
  for (const auto& [group, schemas] : recipe.facts)
    for (const auto& schema : schemas)
      for (const auto& option : schema.options)
        if (options::is_refused(option.change)) known.push_back(group + "." + option.name);
  for (const auto& name : recipe.training.allow_changes) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto ends = [&](const std::string& full) { return full.substr(full.find('.') + 1) == name; };
    const auto full = std::find_if(known.begin(), known.end(), ends);
    const auto hint = full != known.end() ? text("give ", *full) : options::did_you_mean(name, known);
    tell(recipe, report, "allow_changes", {own},
         text("allow_changes contains '", name, "', which is no option whose change is refused"),
         hint.empty() ? "leave it out; `tessera explain OPTION` says what happens to a changed option" : hint);
  }
}

}  // namespace

std::string uncountable(const Recipe& recipe, std::int64_t ranks) {
  try {
    const auto step = recipe.batch_sizes(ranks).global;
    if (step > options::most_step_samples)
      return text("a step has ", step, " samples; at most ", options::most_step_samples, " are allowed");
    const auto samples = recipe.length(ranks).samples;
    (void)checked_product({{"the run's samples", samples}, {"seq_length", recipe.size.seq_length}});
    (void)data::samples_asked(recipe.batch.in_samples() ? samples / step : recipe.training.training_iters, step,
                              recipe.training.eval_interval, recipe.training.evaluation_steps());
    return "";
  } catch (const SizeError& error) {
    return error.message();
  }
}

void require_learning_rate(const Recipe& recipe, std::int64_t steps, std::int64_t ranks) {
  const auto step = recipe.batch_sizes(ranks).global;
  options::Report report;
  check_learning_rate(recipe, {checked_product({{"steps", steps}, {"samples of one", step}}), step}, report);
  report.must_be_good();
}

void check_steps(const Recipe& recipe, std::int64_t ranks, options::Report& report) {
  const auto sizes = recipe.batch_sizes(ranks);
  if (!recipe.batch.in_samples() || !schedule::broken_rules(recipe.ramp, sizes).empty() || recipe.iterations(ranks) > 0)
    return;
  tell(recipe, report, "B7", {"dataset_config.train_samples", "dataset_config.global_batch_size"},
       text("train_samples is ", *recipe.batch.train_samples, ", but a step has ", sizes.global,
            " samples: the run has no step"),
       "give at least as many samples as a step has");
}

void check_rules(const Recipe& recipe, options::Report& report) {
  for (const auto& rule : rules()) {
    const std::vector<std::string> about(rule.about.begin(), rule.about.end());
    if (!known_wrong(report, about) && !rule.holds(recipe))
      tell(recipe, report, rule.name, about, rule.message(recipe), rule.advice);
  }
  check_schedules(recipe, report);
  check_precision(recipe, report);
  check_model(recipe, report);
  check_parallel(recipe, report);
  check_allowed_changes(recipe, report);
  for (const auto rule : recipe.foreign_rules) rule(recipe, report);
  check_lora(recipe, report);
  check_freezing(recipe, report);
  note_parameter_groups(recipe, report);
  check_stage(recipe, report);
  note_profile(recipe, report);
}

}  // namespace tessera::recipe
