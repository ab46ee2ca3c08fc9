#include "framework/interop/flags/conversion_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "framework/base/error.h"

namespace tessera::flags {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// The options that a flag leads to.
std::string options_of(const ConvertedFlag& flag) {
  auto all = flag.to;
  all.insert(all.end(), flag.implied.begin(), flag.implied.end());
  return joined(all, ", ");
}

OrderedJson json_of(const GivenFlag& given) {
  return {{"flag", given.flag}, {"values", given.values}, {"file", given.at.source}, {"line", given.at.line}};
}

OrderedJson json_of(const ConvertedFlag& flag) {
  auto json = json_of(flag.given);
  json["status"] = word_of(flag.status);
  json["to"] = options_of(flag);
  json["why"] = flag.why;
  return json;
}

OrderedJson json_of(const Launch& launch, const std::string& start) {
  OrderedJson options = OrderedJson::object(), environment = OrderedJson::object();
  for (const auto& option : launch.options) options[option.flag] = option.values;
  for (const auto& [name, value] : launch.environment) environment[name] = value;
  return {{"name", launch.launcher},  {"program", launch.program}, {"options", options},        {"start", start},
          {"file", launch.at.source}, {"line", launch.at.line},    {"environment", environment}};
}

std::string padded(std::string words, std::size_t width) {
  if (words.size() < width) words.resize(width, ' ');
  return words;
}

std::string place(const options::Origin& at) { return at.line > 0 ? text(at) : at.source; }

}  // namespace

std::vector<std::size_t> count_by_status(const std::vector<ConvertedFlag>& flags) {
  std::vector<std::size_t> counts(6);
  for (const auto& flag : flags) ++counts[static_cast<std::size_t>(flag.status)];
  return counts;
}

std::string start_line(const Source& source, const std::string& recipe) {
  const auto train = "tessera train " + recipe;
  if (!source.launch) return "";
  const auto& launcher = source.launch->launcher;
  const auto names = [&launcher](const char* word) { return launcher.find(word) != std::string::npos; };
  if (!names("torchrun") && !names("torch.distributed") && !names("msrun") && !names("deepspeed")) return train;
  static const std::set<std::string> without_meaning = {"--use_env", "--use-env", "--include", "--exclude"};
  std::string line = "tsrun";
  for (const auto& option : source.launch->options) {
    auto name = option.flag;
    if (name == "--num_gpus") name = "--nproc_per_node";
    if (name == "--num_nodes") name = "--nnodes";
    const bool unknown = std::any_of(option.values.begin(), option.values.end(),
                                     [](const auto& value) { return value.find('$') != std::string::npos; });
    if (unknown || without_meaning.count(name)) continue;
    line += text(" ", name, option.values.empty() ? "" : " ", joined(option.values, " "));
  }
  return line + " " + train;
}

std::string report_json(const Source& source, const std::string& file, const std::string& recipe,
                        const options::Report& report) {
  OrderedJson json = {
      {"source", file}, {"kind", name_of(source.kind)}, {"from", source.from}, {"from_why", source.from_why}};
  json["launcher"] = source.launch ? json_of(*source.launch, start_line(source, recipe)) : OrderedJson(nullptr);
  json["launches"] = source.launches;
  json["flags"] = OrderedJson::array();
  for (const auto& flag : source.flags) json["flags"].push_back(json_of(flag));
  for (const auto& [flag, condition] : source.elsewhere) {
    json["flags"].push_back(json_of(flag));
    json["flags"].back()["only_where"] = condition;
  }
  json["unknown"] = OrderedJson::array();
  for (const auto& one : source.unknowns)
    json["unknown"].push_back({{"name", one.name},
                               {"used_by", one.used_by},
                               {"file", one.at.source},
                               {"line", one.at.line},
                               {"give", answer_to(one.name)}});
  json["undecided"] = OrderedJson::array();
  for (const auto& one : source.undecided)
    json["undecided"].push_back({{"condition", one.condition},
                                 {"file", one.at.source},
                                 {"line", one.at.line},
                                 {"needs", one.needs},
                                 {"flags", one.flags},
                                 {"remedy", remedy_for(one)}});
  json["problems"] = report.problems();
  json["notes"] = report.notes();
  const auto counts = count_by_status(source.flags);
  json["counts"] = OrderedJson::object();
  for (const auto status : {FlagStatus::mapped, FlagStatus::ignored, FlagStatus::planned, FlagStatus::refused,
                            FlagStatus::unknown, FlagStatus::undecided})
    json["counts"][word_of(status)] = counts[static_cast<std::size_t>(status)];
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string report_table(const Source& source, bool verbose) {
  std::string out;
  if (source.launch)
    out += text(place(source.launch->at), ": ", source.launch->launcher, " ... ", source.launch->program, "\n");
  if (!source.from.empty()) out += text("flags of ", source.from, " (", source.from_why, ")\n\n");
  std::size_t flag_width = 4, value_width = 5;
  const auto value_of = [](const ConvertedFlag& flag) {
    auto words = joined(flag.given.values, " ");
    return words.size() <= 32 ? words : words.substr(0, 29) + "...";
  };
  for (const auto& flag : source.flags) {
    flag_width = std::max(flag_width, flag.given.flag.size());
    value_width = std::max(value_width, value_of(flag).size());
  }
  for (const auto& flag : source.flags) {
    if (flag.status == FlagStatus::ignored && !verbose) continue;
    const auto becomes = flag.status == FlagStatus::mapped ? options_of(flag) : word_of(flag.status) + ": " + flag.why;
    out += text(padded(flag.given.flag, flag_width), "  ", padded(value_of(flag), value_width), "  ", becomes, "\n");
  }
  if (!source.elsewhere.empty()) out += "\nin branches that were not taken:\n";
  for (const auto& [flag, condition] : source.elsewhere)
    out +=
        text(padded(flag.given.flag, flag_width), "  ", padded(value_of(flag), value_width), "  not ", condition, "\n");
  const auto counts = count_by_status(source.flags);
  out += text("\n", source.flags.size(), " flags: ", counts[0], " mapped, ", counts[1], " ignored, ", counts[2],
              " planned, ", counts[3], " refused, ", counts[4], " unknown",
              counts[5] > 0 ? text(", ", counts[5], " undecided") : "",
              counts[1] > 0 && !verbose ? "; --verbose lists the ignored ones too" : "", "\n");
  return out;
}

std::vector<std::string> caller_values(const Source& source) {
  std::vector<std::string> lines;
  for (const auto& one : source.unknowns) {
    const bool used = std::any_of(source.flags.begin(), source.flags.end(), [&one](const ConvertedFlag& flag) {
      return flag.status != FlagStatus::ignored &&
             std::find(one.used_by.begin(), one.used_by.end(), flag.given.flag) != one.used_by.end();
    });
    if (!used) continue;
    const auto answer = answer_to(one.name);
    lines.push_back(text(place(one.at), ": ", one.name, " of ", joined(one.used_by, ", "), " is left to the caller; ",
                         answer.empty() ? "set it in the environment of the training" : "give " + answer));
  }
  return lines;
}

std::vector<std::string> head_of(const Source& source, const std::string& file, const std::string& recipe) {
  std::vector<std::string> head;
  const auto from = source.from.empty() ? "" : text(", read as ", source.from);
  head.push_back(text("From ", source.launch ? place(source.launch->at) : file, from, ", by tessera convert."));
  const auto start = start_line(source, recipe);
  if (!start.empty()) head.insert(head.end(), {"Started as there:", "  " + start});
  if (!source.unknowns.empty())
    head.emplace_back("Set these environment variables, which the script leaves to its caller:");
  for (const auto& one : source.unknowns) head.push_back(text("  ", one.name, "  (", joined(one.used_by, ", "), ")"));
  return head;
}

}  // namespace tessera::flags
