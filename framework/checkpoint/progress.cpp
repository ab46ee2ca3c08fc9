#include "framework/checkpoint/progress.h"

#include <algorithm>

#include "framework/base/json.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/options/option_type.h"

namespace tessera::checkpoint {
namespace {

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
  return {std::stof(json.at("scale").string()), json.at("growth_tracker").get<int>(),
          json.at("hysteresis_tracker").get<int>()};
}

Json json_of(const NumberHistory& numbers) {
  return {{"largest_loss", numbers.largest_loss},
          {"largest_grad_norm", numbers.largest_grad_norm},
          {"good_steps", numbers.good_steps},
          {"last_good", numbers.last_good},
          {"bad_in_row", numbers.bad_in_row}};
}

NumberHistory numbers_of(const Json& json) {
  NumberHistory numbers;
  json.at("largest_loss").get_to(numbers.largest_loss);
  json.at("largest_grad_norm").get_to(numbers.largest_grad_norm);
  json.at("good_steps").get_to(numbers.good_steps);
  json.at("last_good").get_to(numbers.last_good);
  json.at("bad_in_row").get_to(numbers.bad_in_row);
  return numbers;
}

Findings findings_of(const Json& json) {
  Findings findings;
  for (const auto& [begin, end] : json.at("skip").get<std::vector<IterationSet::Range>>())
    findings.skip.add(begin, end);
  json.at("roll_back_end").get_to(findings.roll_back_end);
  return findings;
}

}  // namespace

void IterationSet::add(std::int64_t begin, std::int64_t end) {
  if (begin >= end) return;
  const auto first = std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r[1] < begin; });
  auto last = first;
  for (; last != ranges_.end() && (*last)[0] <= end; ++last)
    begin = std::min(begin, (*last)[0]), end = std::max(end, (*last)[1]);
  ranges_.insert(ranges_.erase(first, last), Range{begin, end});
}

bool IterationSet::contains(std::int64_t iteration) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const Range& r) { return r[0] <= iteration && iteration < r[1]; });
}

std::string write_progress(const Progress& progress) {
  Json json = {{"iteration", progress.iteration},
               {"updates", progress.updates},
               {"consumed_samples", progress.consumed_samples},
               {"skipped_samples", progress.skipped_samples},
               {"consumed_valid_samples", progress.consumed_valid_samples},
               {"data_start", progress.data_start},
               {"global_batch_size", progress.global_batch_size},
               {"order_stride", progress.order_stride},
               {"sample_chain", progress.sample_chain},
               {"run", progress.run}};
  if (progress.has_seed) json["seed"] = progress.seed;
  if (!progress.quarantine.empty()) json["quarantine"] = progress.quarantine;
  if (progress.schedule) json["schedule"] = json_of(*progress.schedule);
  if (progress.loss_scale)
    json["loss_scale"] = {
        {"scale", options::OptionType<double>::write(progress.loss_scale->scale).scalar},  // as text: it may be inf
        {"growth_tracker", progress.loss_scale->growth_tracker},
        {"hysteresis_tracker", progress.loss_scale->hysteresis_tracker}};
  json["numbers"] = json_of(progress.numbers);
  if (progress.findings != Findings{})
    json["findings"] = {{"skip", progress.findings.skip.ranges()}, {"roll_back_end", progress.findings.roll_back_end}};
  return json.sorted().dump(1);
}

Progress read_progress(const std::string& words, const std::string& speaker) {
  try {
    const auto json = parse_json(words);
    Progress out;
    json.at("iteration").get_to(out.iteration);
    out.updates = json.value("updates", out.iteration);
    json.at("consumed_samples").get_to(out.consumed_samples);
    out.skipped_samples = json.value("skipped_samples", std::int64_t{0});
    out.consumed_valid_samples = json.value("consumed_valid_samples", std::int64_t{-1});
    out.data_start = json.value("data_start", std::int64_t{0});
    out.global_batch_size = json.value("global_batch_size", std::int64_t{0});
    out.order_stride = json.value("order_stride", std::int64_t{0});
    out.has_seed = json.contains("seed");
    if (out.has_seed) json.at("seed").get_to(out.seed);
    out.sample_chain = json.value("sample_chain", std::uint32_t{0});
    out.quarantine = json.value("quarantine", out.quarantine);
    out.run = json.value("run", "");
    if (json.contains("schedule")) out.schedule = schedule_of(json.at("schedule"));
    out.numbers.last_good = out.iteration - 1;
    if (json.contains("numbers")) out.numbers = numbers_of(json.at("numbers"));
    if (json.contains("findings")) out.findings = findings_of(json.at("findings"));
    if (json.contains("loss_scale")) out.loss_scale = loss_scale_of(json.at("loss_scale"));
    return out;
  } catch (const JsonError& error) {
    throw DamageError(text(speaker, ": ", error.what()));
  } catch (const std::logic_error& error) {  // a loss scale that is not a number
    throw DamageError(text(speaker, ": loss_scale: ", error.what()));
  }
}

}  // namespace tessera::checkpoint
