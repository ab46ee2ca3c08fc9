#include "framework/checkpoint/progress.h"

#include <nlohmann/json.hpp>

#include "framework/base/json.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/options/option_type.h"

namespace tessera::checkpoint {
namespace {

using Json = nlohmann::json;

Json json_of(const schedule::ScheduleState& schedule) {
  Json json;
  schedule::visit_fields(schedule, [&](const char* name, const auto& field) { json[name] = field; });
  return json;
}

schedule::ScheduleState schedule_of(const Json& json) {
  schedule::ScheduleState schedule;
  schedule::visit_fields(schedule, [&](const char* name, auto& field) { json.at(name).get_to(field); });
  return schedule;
}

LossScaleState loss_scale_of(const Json& json) {
  return {std::stof(json.at("scale").get<std::string>()), json.at("growth_tracker"), json.at("hysteresis_tracker")};
}

}  // namespace

std::string write_progress(const Progress& progress) {
  Json json = {{"iteration", progress.iteration},
               {"updates", progress.updates},
               {"consumed_samples", progress.consumed_samples},
               {"skipped_samples", progress.skipped_samples},
               {"consumed_valid_samples", progress.consumed_valid_samples},
               {"data_start", progress.data_start},
               {"seed", progress.seed},
               {"run", progress.run}};
  if (progress.schedule) json["schedule"] = json_of(*progress.schedule);
  if (progress.loss_scale)
    json["loss_scale"] = {
        {"scale", options::OptionType<double>::write(progress.loss_scale->scale).scalar},  // as text: it may be inf
        {"growth_tracker", progress.loss_scale->growth_tracker},
        {"hysteresis_tracker", progress.loss_scale->hysteresis_tracker}};
  return json.dump(1);
}

Progress read_progress(const std::string& words, const std::string& speaker) {
  try {
    const auto json = parse_json(words);
    Progress out;
    out.iteration = json.at("iteration");
    out.updates = json.value("updates", out.iteration);
    out.consumed_samples = json.at("consumed_samples");
    out.skipped_samples = json.value("skipped_samples", std::int64_t{0});
    out.consumed_valid_samples = json.value("consumed_valid_samples", std::int64_t{-1});
    out.data_start = json.value("data_start", std::int64_t{0});
    out.seed = json.at("seed");
    out.run = json.value("run", "");
    if (json.contains("schedule")) out.schedule = schedule_of(json.at("schedule"));
    if (json.contains("loss_scale")) out.loss_scale = loss_scale_of(json.at("loss_scale"));
    return out;
  } catch (const Json::exception& error) {
    throw DamageError(text(speaker, ": ", error.what()));
  } catch (const std::logic_error& error) {  // a loss scale that is no number
    throw DamageError(text(speaker, ": loss_scale: ", error.what()));
  }
}

}  // namespace tessera::checkpoint
