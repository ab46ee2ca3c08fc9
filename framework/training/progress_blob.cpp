#include "framework/training/progress_blob.h"

#include <nlohmann/json.hpp>

#include "framework/base/json.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

Json json_of(const ScheduleState& s) {
  return {{"max_lr", s.max_lr},
          {"min_lr", s.min_lr},
          {"lr_warmup_steps", s.lr_warmup_steps},
          {"lr_decay_steps", s.lr_decay_steps},
          {"lr_decay_style", s.lr_decay_style},
          {"num_steps", s.num_steps},
          {"start_wd", s.start_wd},
          {"end_wd", s.end_wd},
          {"wd_incr_steps", s.wd_incr_steps},
          {"wd_incr_style", s.wd_incr_style}};
}

ScheduleState schedule_of(const Json& json) {
  return {json.at("max_lr"),         json.at("min_lr"),       json.at("lr_warmup_steps"), json.at("lr_decay_steps"),
          json.at("lr_decay_style"), json.at("num_steps"),    json.at("start_wd"),        json.at("end_wd"),
          json.at("wd_incr_steps"),  json.at("wd_incr_style")};
}

/// What plays no part in the numbers of the run is not worth a refusal: lengths of a decay that is none.
ScheduleState without_idle_fields(ScheduleState saved, const ScheduleState& ours) {
  if (saved.lr_decay_style == "constant" && ours.lr_decay_style == "constant") {
    saved.min_lr = ours.min_lr;
    saved.lr_decay_steps = ours.lr_decay_steps;
  }
  if (saved.wd_incr_style == "constant" && ours.wd_incr_style == "constant") saved.wd_incr_steps = ours.wd_incr_steps;
  return saved;
}

/// Schedule and loss scale as they were saved; checkpoints of the first version have neither.
void restore_rates(const Json& json, TrainingSetup& setup) {
  auto& schedule = *setup.optimization.schedule;
  if (json.contains("schedule"))
    schedule.restore(without_idle_fields(schedule_of(json.at("schedule")), schedule.state()),
                     setup.optimization.schedule_resume);
  else
    schedule.advance(json.at("consumed_samples"));
  if (json.contains("loss_scale")) {
    const auto& scale = json.at("loss_scale");
    setup.optimization.loss_scaler.restore(
        {std::stof(scale.at("scale").get<std::string>()), scale.at("growth_tracker"), scale.at("hysteresis_tracker")});
  }
}

}  // namespace

std::string write_progress(const Progress& progress, const TrainingSetup& setup) {
  Json json = {{"iteration", progress.iteration},
               {"updates", progress.updates},
               {"consumed_samples", progress.consumed_samples},
               {"skipped_samples", progress.skipped_samples},
               {"consumed_valid_samples", progress.consumed_valid_samples},
               {"data_start", progress.data_start},
               {"seed", progress.seed},
               {"run", progress.run},
               {"schedule", json_of(setup.optimization.schedule->state())}};
  if (const auto scale = setup.optimization.loss_scaler.state(); setup.optimization.loss_scaler.dynamic())
    json["loss_scale"] = {{"scale", OptionType<double>::write(scale.scale).scalar},  // as text: it may be inf
                          {"growth_tracker", scale.growth_tracker},
                          {"hysteresis_tracker", scale.hysteresis_tracker}};
  return json.dump(1);
}

Progress read_progress(const std::string& words, const std::filesystem::path& folder, TrainingSetup& setup) {
  const auto file = (folder / progress_blob).string();
  try {
    const auto json = parse_json(words);
    Progress out;
    out.iteration = json.at("iteration");
    out.consumed_samples = json.at("consumed_samples");
    out.seed = json.at("seed");
    out.run = json.value("run", "");
    out.skipped_samples = json.value("skipped_samples", out.skipped_samples);
    out.consumed_valid_samples = json.value("consumed_valid_samples", std::int64_t{-1});
    out.data_start = json.value("data_start", std::int64_t{0});
    if (setup.options.no_load_optim) return out;
    out.updates = json.value("updates", out.iteration);
    restore_rates(json, setup);
    return out;
  } catch (const Json::exception& error) {
    throw DamageError(text(file, ": ", error.what()));
  } catch (ConfigError& error) {
    error.during("going on from " + folder.string());
    throw;
  }
}

}  // namespace tessera
