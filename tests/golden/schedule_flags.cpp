#include "tests/golden/schedule_flags.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "framework/interop/flags/flag_table.h"
#include "framework/options/mappings.h"
#include "framework/recipe/build.h"

namespace tessera::golden {
namespace {

std::vector<std::string> words_of(const std::string& flags) {
  std::istringstream in(flags);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

recipe::Recipe recipe_of(const std::string& flags) {
  auto argv = words_of(flags);
  const auto map = flags::FlagTable::from("megatron.yaml", options::Mappings());
  must_know(argv, map);
  if (std::find(argv.begin(), argv.end(), "--lr") == argv.end())
    throw ConfigError("--lr is missing; Megatron-LM has no default for it");
  argv.emplace_back("--mock-data");
  const recipe::Registries registries;
  options::Report report;
  auto tree = map.convert(argv, recipe::all_facts(registries), report);
  const options::Origin origin{"the recorded runs", 0, "", 1};
  const std::pair<const char*, const char*> model[] = {{"model_config.num_layers", "2"},
                                                       {"model_config.hidden_size", "64"},
                                                       {"model_config.num_attention_heads", "4"},
                                                       {"model_config.seq_length", "32"},
                                                       {"model_config.vocab_size", "128"}};
  for (const auto& [path, value] : model) tree.set(path, options::Value::of(value, origin));
  auto recipe = recipe::read_recipe(tree, registries, report);
  report.must_be_good();
  return recipe;
}

Json samples_of(const recipe::Recipe& recipe, const char* steps, const char* samples) {
  const auto number = [&](const char* option) {
    const auto* value = recipe.resolved.at(text("optimizer_config.", option));
    return value && value->kind == options::Value::Kind::scalar ? Json::parse(value->scalar) : Json();
  };
  if (const auto in_steps = number(steps); !in_steps.is_null())
    return in_steps.get<std::int64_t>() * recipe.batch_sizes().global;
  return number(samples);
}

}  // namespace

void must_know(const std::vector<std::string>& argv, const flags::FlagTable& map) {
  for (const auto& word : argv) {
    if (word.rfind("--", 0) != 0) continue;
    const auto row =
        std::find_if(map.rows().begin(), map.rows().end(), [&](const flags::FlagRow& one) { return one.flag == word; });
    if (row == map.rows().end()) throw NotSupported{word + " is not a flag we know"};
    if (row->kind == flags::FlagRow::Kind::refused) throw NotSupported{text(word, " is not built: ", row->why)};
  }
}

FlaggedRun::FlaggedRun(const std::string& flags, std::int64_t ranks)
    : recipe(recipe_of(flags)),
      batches(recipe.ramp, recipe.batch_sizes(ranks)),
      schedule(recipe::build_schedule(recipe, recipe.length(ranks))) {}

std::vector<double> FlaggedRun::learning_rates() const {
  const auto& rate = recipe.learning_rate;
  const auto all = schedule->learning_rate(rate.learning_rate, rate.min_lr);
  std::vector<double> rates = {all, all};
  if (const auto& own = recipe.groups; own.decoupled_lr)
    rates.push_back(schedule->learning_rate(*own.decoupled_lr, own.decoupled_min_lr.value_or(rate.min_lr)));
  return rates;
}

std::vector<double> FlaggedRun::weight_decays() const {
  std::vector<double> decays = {schedule->weight_decay(), 0};
  if (recipe.groups.decoupled_lr) decays.push_back(schedule->weight_decay());
  return decays;
}

void compare_exactly(const std::string& name, double x, const Json& expected, Comparison& comparison) {
  const double value = expected.get<double>();
  comparison.compare(name, x, value, 1e-12 * std::max(std::abs(value), 1e-6));
}

void compare_fields(const Json& recorded, const FlaggedRun& run, Comparison& comparison) {
  const auto state = run.schedule->state();
  const auto& resume = run.recipe.schedule_resume;
  const auto* fall = run.recipe.resolved.at("optimizer_config.lr_wsd_decay_style");
  const std::map<std::string, Json> ours = {
      {"init_lr", run.schedule->rate_shape().init},
      {"max_lr", state.max_lr},
      {"min_lr", state.min_lr},
      {"lr_warmup_steps", state.lr_warmup_steps},
      {"num_steps", state.num_steps},
      {"lr_decay_steps", state.lr_decay_steps},
      {"wsd_decay_steps", samples_of(run.recipe, "lr_wsd_decay_iters", "lr_wsd_decay_samples")},
      {"lr_wsd_decay_style", fall ? Json(fall->scalar) : Json()},
      {"lr_decay_style", state.lr_decay_style},
      {"start_wd", state.start_wd},
      {"end_wd", state.end_wd},
      {"wd_incr_steps", state.wd_incr_steps},
      {"wd_incr_style", state.wd_incr_style},
      {"override_opt_param_scheduler", resume.override_opt_param_scheduler},
      {"use_checkpoint_opt_param_scheduler", resume.use_checkpoint_opt_param_scheduler}};
  for (const auto& [name, value] : recorded.items()) {
    const auto found = ours.find(name);
    if (found == ours.end()) {
      comparison.wrong(text("nobody knows the field ", name));
    } else if (name == "lr_wsd_decay_style" && found->second.is_null()) {
      continue;  // a style of its own type, which is not chosen
    } else if (value.is_number() && found->second.is_number()) {
      compare_exactly(name, found->second, value, comparison);
    } else if (value != found->second) {
      comparison.wrong(text(name, " is ", found->second.dump(), " instead of ", value.dump()));
    }
  }
}

void compare_rows(const Json& rows, FlaggedRun& run, Comparison& comparison) {
  const auto compare = [&](const std::string& name, const std::vector<double>& x, const Json& expected) {
    if (x.size() != expected.size())
      return comparison.wrong(text(name, " has ", x.size(), " groups instead of ", expected.size()));
    for (std::size_t k = 0; k < x.size(); ++k)
      compare_exactly(text(name, ", group ", k), x[k], expected[k], comparison);
  };
  std::int64_t consumed = rows.empty() ? 0 : rows[0][1].get<std::int64_t>();
  for (const auto& row : rows) {
    const auto at = text(" in step ", row[0].dump());
    compare_exactly("samples before" + at, static_cast<double>(consumed), row[1], comparison);
    const auto size = run.batches.at(consumed);
    compare_exactly("micro-batches" + at, static_cast<double>(size.micro_batches), row[2], comparison);
    compare("learning rate" + at, run.learning_rates(), row[3]);
    compare("weight decay" + at, run.weight_decays(), row[4]);
    consumed += size.samples;
    run.schedule->advance(size.samples);
  }
}

}  // namespace tessera::golden
