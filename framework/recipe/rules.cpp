#include <algorithm>

#include "framework/model/gpt_options.h"
#include "framework/recipe/recipe.h"

namespace tessera {
namespace {

/// What must hold between options, and what to say when it does not.
struct Rule {
  const char* name;
  std::vector<const char*> about;  ///< the options it looks at; the first is pointed at
  bool (*holds)(const Recipe&);
  std::string (*story)(const Recipe&);  ///< what came
  const char* advice;
};

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"batches divide",
       {"dataset_config.global_batch_size", "dataset_config.batch_size"},
       [](const Recipe& r) {
         return !r.batch.global_batch_size || *r.batch.global_batch_size % r.batch.batch_size == 0;
       },
       [](const Recipe& r) {
         return text("global_batch_size is ", *r.batch.global_batch_size, ", which batch_size ", r.batch.batch_size,
                     " does not divide");
       },
       "make it a multiple"},
      {"batches agree",
       {"dataset_config.micro_batch_num", "dataset_config.global_batch_size", "dataset_config.batch_size"},
       [](const Recipe& r) {
         const auto& b = r.batch;
         return !b.global_batch_size || !b.micro_batch_num || *b.global_batch_size % b.batch_size != 0 ||
                *b.global_batch_size == *b.micro_batch_num * b.batch_size;
       },
       [](const Recipe& r) {
         return text("micro_batch_num is ", *r.batch.micro_batch_num, ", but global_batch_size ",
                     *r.batch.global_batch_size, " in micro-batches of ", r.batch.batch_size, " makes ",
                     *r.batch.global_batch_size / r.batch.batch_size);
       },
       "give one of micro_batch_num and global_batch_size"},
      {"the vocabulary is known",
       {"model_config.vocab_size", "dataset_config.tokenizer_type"},
       [](const Recipe& r) { return r.size.vocab_size || r.tokenizer.type != "none"; },
       [](const Recipe&) {
         return std::string(
             "vocab_size is missing, and with tokenizer_type none nothing says how many tokens there are");
       },
       "give model_config.vocab_size, or choose a tokenizer"},
  };
  return all;
}

/// Where `option` was written; a default stands for its group or the recipe.
Origin place(const Recipe& recipe, const std::string& option) {
  const auto* value = recipe.resolved.at(option);
  return value ? value->origin : Origin{};
}

/// Whether one of `options` is reported already: a rule about them has nothing to add, and may not even be asked.
bool known_wrong(const Report& report, const std::vector<std::string>& options) {
  return std::any_of(options.begin(), options.end(), [&](const auto& option) { return report.concerns(option); });
}

/// Report `message`, pointing at `option` or, when that has its default, at what else the rule looks at.
void tell(const Recipe& recipe, Report& report, std::vector<std::string> options, const std::string& message,
          const std::string& advice) {
  if (known_wrong(report, options)) return;
  auto at = place(recipe, options[0]);
  for (const auto& option : options)
    if (at.layer == 0) at = place(recipe, option);
  if (at.layer == 0) at = place(recipe, options[0].substr(0, options[0].find('.')));
  report.problem(at, options[0], message, advice);
}

void check_schedules(const Recipe& recipe, Report& report) {
  const std::string group = "optimizer_config.";
  if (report.concerns("training_config.training_iters") || report.concerns("dataset_config.batch_size")) return;
  for (const auto& rule : broken_rules(recipe.learning_rate, recipe.length()))
    tell(recipe, report,
         {group + rule.key, group + "learning_rate", group + "lr_decay_iters", "training_config.training_iters"},
         rule.message, rule.suggestion);
  for (const auto& rule : broken_rules(recipe.weight_decay, recipe.length()))
    tell(recipe, report, {group + rule.key, group + "weight_decay", group + "weight_decay_incr_style"}, rule.message,
         rule.suggestion);
}

void check_model(const Recipe& recipe, Report& report) {
  const std::string group = "model_config.";
  const auto* gpt = recipe.model.options<GptOptions>();
  for (const auto* needed : {"num_layers", "hidden_size", "num_attention_heads", "seq_length"})
    if (!gpt || report.concerns(group + needed)) return;
  for (const auto& [option, message] : contradictions(*gpt, recipe.size.seq_length)) {
    const auto advice = message.rfind("; ");  // their last part says what to do
    tell(recipe, report, {group + option, group + "seq_length"}, message.substr(0, advice),
         advice == std::string::npos ? "change one of them" : message.substr(advice + 2));
  }
}

}  // namespace

void check_rules(const Recipe& recipe, Report& report) {
  for (const auto& rule : rules()) {
    const std::vector<std::string> about(rule.about.begin(), rule.about.end());
    if (!known_wrong(report, about) && !rule.holds(recipe))
      tell(recipe, report, about, rule.story(recipe), rule.advice);
  }
  check_schedules(recipe, report);
  check_model(recipe, report);
}

}  // namespace tessera
