#include "tests/golden/schedules.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <regex>
#include <sstream>
#include <vector>

#include "framework/training/setup/loss_scale.h"
#include "tests/golden/schedule_flags.h"

namespace tessera {
namespace golden {
namespace {

/// `run` must be refused, as it was when it was recorded. Returns what we say; what is wrong goes to the comparison.
std::string refusal(const std::function<void()>& run, Comparison& comparison) {
  try {
    run();
  } catch (const ConfigError& error) {
    return error.what();
  }
  comparison.wrong("is taken, though Megatron-LM refuses it");
  return "";
}

/// What a line of our refusal calls the fields of upstream's message.
const std::map<std::string, std::vector<const char*>>& our_words() {
  static const std::map<std::string, std::vector<const char*>> all = {
      {"learning rate", {"learning rate"}},
      {"minimum learning rate", {"minimum learning rate"}},
      {"warmup iterations", {"warmup iterations", "the warm-up"}},
      {"total number of iterations", {"total number of iterations", "the decay of the learning rate"}},
      {"learning rate decay style", {"decay style"}},
      {"start weight decay", {"start weight decay", "first weight decay", ": weight decay is"}},
      {"end weight decay", {"end weight decay", "last weight decay", ": weight decay is"}},
      {"total number of weight decay iterations", {"weight decay iterations", "growth of weight decay"}},
      {"weight decay incr style", {"weight decay incr style", "growth of weight decay"}}};
  return all;
}

bool both_numbers(const std::string& a, const std::string& b, double& x, double& y) {
  return options::OptionType<double>::read(options::Value::of(a, {}), x) &&
         options::OptionType<double>::read(options::Value::of(b, {}), y);
}

/// Whether two words are the same value: as numbers where both are, so that 24 is 24.0 and 1e-05 is 0.00001.
bool same_value(const std::string& a, const std::string& b) {
  double x = 0, y = 0;
  return both_numbers(a, b, x, y) ? x == y : a == b;
}

/// What a refusal says of a field: its value in the run and in the checkpoint.
struct Difference {
  std::string field, run, checkpoint;
};

/// Whether a line of ours tells this difference. Lengths may be told in another unit: then both values are.
bool tells(const std::string& line, const Difference& theirs) {
  static const std::regex value(" is (\\S+) in the recipe and (\\S+) in the checkpoint"),
      length(" ends after (\\S+) \\w+ in the recipe and after (\\S+) \\w+ in the checkpoint");
  const auto words = our_words().find(theirs.field);
  if (words == our_words().end()) return false;
  const bool names = std::any_of(words->second.begin(), words->second.end(),
                                 [&](const char* name) { return line.find(name) != std::string::npos; });
  std::smatch said;
  if (!names) return false;
  if (std::regex_search(line, said, value))
    return same_value(theirs.run, said[1]) && same_value(theirs.checkpoint, said[2]);
  double run = 0, checkpoint = 0, our_run = 0, our_checkpoint = 0;
  return std::regex_search(line, said, length) && both_numbers(theirs.run, theirs.checkpoint, run, checkpoint) &&
         both_numbers(said[1], said[2], our_run, our_checkpoint) && our_run > 0 && our_checkpoint > 0 &&
         std::abs(run / our_run - checkpoint / our_checkpoint) <= 1e-9 * run / our_run;
}

/// Upstream's message names a field and two values; a line of ours must too, each on its side.
void compare_refusals(const std::string& theirs, const std::string& ours, Comparison& comparison) {
  static const std::regex form("class input value (.*) and checkpointvalue (.*) for (.*) do not match");
  std::smatch parts;
  if (ours.empty()) return;
  if (!std::regex_search(theirs, parts, form)) return;
  const Difference difference{parts[3], parts[1], parts[2]};
  std::istringstream lines(ours);
  for (std::string line; std::getline(lines, line);)
    if (tells(line, difference)) return;
  comparison.wrong(text("our refusal does not say that ", difference.field, " is ", difference.run, " and ",
                        difference.checkpoint, ": ", ours));
}

std::string judge_scheduler(const Json& row) {
  Comparison comparison;
  const auto make = [&] { return FlaggedRun(row.at("flags"), row.at("world_size")); };
  if (row.contains("error")) {
    refusal([&] { make(); }, comparison);
  } else {
    auto run = make();
    const std::int64_t ranks = row.at("world_size");
    compare_fields(row.at("scheduler"), run, comparison);
    compare_exactly("train_iters", static_cast<double>(run.recipe.iterations(ranks)), row.at("train_iters"),
                    comparison);
    compare_rows(row.at("rows"), run, comparison);
  }
  return comparison.good() ? "" : comparison.summary();
}

schedule::ScheduleState state_of(const Json& saved) {
  return {saved.at("max_lr"),         saved.at("min_lr"),       saved.at("lr_warmup_steps"), saved.at("lr_decay_steps"),
          saved.at("lr_decay_style"), saved.at("num_steps"),    saved.at("start_wd"),        saved.at("end_wd"),
          saved.at("wd_incr_steps"),  saved.at("wd_incr_style")};
}

/// What a run of the first flags saves must be what was saved.
void compare_saved(const Json& row, Comparison& comparison) {
  FlaggedRun run(row.at("first_flags"), row.at("world_size"));
  for (std::int64_t i = 0; i < row.at("first_iterations"); ++i)
    run.schedule->advance(run.batches.at(run.schedule->samples()).samples);
  compare_fields(row.at("saved"), run, comparison);
}

std::string judge_resume(const Json& row) {
  Comparison comparison;
  compare_saved(row, comparison);
  const auto go_on = [&] {
    auto run = FlaggedRun(row.at("second_flags"), row.at("world_size"));
    run.schedule->restore(state_of(row.at("saved")), run.recipe.schedule_resume);
    return run;
  };
  if (row.contains("error")) {
    const auto ours = refusal([&] { go_on(); }, comparison);
    compare_refusals(row.at("error"), ours, comparison);
    return comparison.good() ? "" : comparison.summary();
  }
  auto run = go_on();
  compare_fields(row.at("scheduler_after_load"), run, comparison);
  compare_exactly("lr after load", run.learning_rates()[0], row.at("lr_after_load")[0], comparison);
  compare_exactly("weight decay after load", run.weight_decays()[0], row.at("weight_decay_after_load")[0], comparison);
  compare_rows(row.at("rows"), run, comparison);
  return comparison.good() ? "" : comparison.summary();
}

std::int64_t integer(const Json& value) {
  return value.is_string() ? std::stoll(value.get<std::string>()) : value.get<std::int64_t>();
}

schedule::BatchPlan plan_of(const Json& row) {
  schedule::BatchRampOptions options;
  options.decrease_batch_size_if_needed = row.value("decrease", false);
  if (row.contains("rampup")) {
    options.rampup_batch_size.emplace();
    for (const auto& number : row.at("rampup")) options.rampup_batch_size->push_back(integer(number));
  }
  return {options, {integer(row.at("mbs")), integer(row.at("gbs")), integer(row.at("dp"))}};
}

void compare_size(const std::string& name, const schedule::StepSize& size, const Json& expected,
                  Comparison& comparison) {
  const std::int64_t ours[] = {size.micro_batches, size.nominal, size.samples};
  for (std::size_t k = 0; k < 3; ++k)
    compare_exactly(text(name, ", number ", k), static_cast<double>(ours[k]), expected[k], comparison);
}

std::string judge_micro_batches(const Json& row) {
  Comparison comparison;
  if (row.contains("error")) {
    refusal([&] { plan_of(row); }, comparison);
    return comparison.good() ? "" : comparison.summary();
  }
  const auto plan = plan_of(row);
  for (const auto& line : row.at("rows")) {
    const std::int64_t consumed = line[0];
    compare_size(text("planned after ", consumed), plan.planned(consumed), line[1], comparison);
    if (line[2].is_string() || line[2][0] == 0)  // a step of no micro-batch, with which Megatron-LM never ends
      refusal([&] { plan.at(consumed); }, comparison);
    else
      compare_size(text("checked after ", consumed), plan.at(consumed), line[2], comparison);
  }
  return comparison.good() ? "" : comparison.summary();
}

/// A recorded number; "inf" where JSON has none.
double number(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

void compare_scale(const std::string& at, double ours, const Json& expected, Comparison& comparison) {
  const auto theirs = number(expected);
  if (ours != theirs) comparison.wrong(text(at, " is ", ours, " instead of ", theirs));
}

training::LossScaler scaler_of(const Json& row) {
  training::LossScaleOptions options;
  options.loss_scale_value = row.at("initial");
  options.min_loss_scale = row.at("minimum");
  options.loss_scale_window = row.at("window");
  options.hysteresis = row.at("hysteresis");
  return {options, true};
}

void compare_scaler(const std::string& at, const training::LossScaler& scaler, const Json& row,
                    Comparison& comparison) {
  const auto state = scaler.state();
  compare_scale("scale" + at, static_cast<double>(scaler.scale()), row[1], comparison);
  compare_scale("inverse scale" + at, scaler.inverse(), row[2], comparison);
  compare_scale("growth tracker" + at, static_cast<double>(state.growth_tracker), row[3], comparison);
  compare_scale("hysteresis tracker" + at, static_cast<double>(state.hysteresis_tracker), row[4], comparison);
}

/// A second scaler stops and goes on from its state before every update: the state is all there is.
std::string judge_loss_scale(const Json& row) {
  Comparison comparison;
  if (row.contains("error")) {
    refusal([&] { scaler_of(row); }, comparison);
    return comparison.good() ? "" : comparison.summary();
  }
  auto scaler = scaler_of(row);
  std::size_t step = 0;
  for (const auto& line : row.at("rows")) {
    const bool overflow = row.at("trace").get<std::string>().at(step++) == 'x';
    auto resumed = scaler_of(row);
    resumed.restore(scaler.state());
    scaler.update(overflow);
    resumed.update(overflow);
    compare_scaler(text(" after ", step), scaler, line, comparison);
    compare_scaler(text(" after ", step, ", resumed"), resumed, line, comparison);
  }
  const auto& saved = row.at("state_dict");
  compare_scale("saved scale", static_cast<double>(scaler.scale()), saved.at("scale")[0], comparison);
  return comparison.good() ? "" : comparison.summary();
}

}  // namespace
}  // namespace golden

std::vector<CaseResult> run_schedule_cases(const std::filesystem::path& folder) {
  using namespace golden;
  DataFolder data(folder);
  const auto judge = [&](const char* name, std::string (*one)(const golden::Json&)) {
    const auto file = text(name, ".jsonl");
    if (!data.has(file)) return;
    std::size_t number = 0;
    for (const auto& row : data.lines(file)) {
      const auto which = row.contains("name") ? row.at("name").get<std::string>() : text(number);
      ++number;
      data.run(text(name, "/", which), [&] { return one(row); });
    }
  };
  judge("scheduler", judge_scheduler);
  judge("resume", judge_resume);
  judge("microbatches", judge_micro_batches);
  judge("loss_scale", judge_loss_scale);
  return std::move(data.results);
}

}  // namespace tessera
