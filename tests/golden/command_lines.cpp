#include "tests/golden/command_lines.h"

#include <algorithm>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "framework/base/error.h"
#include "framework/interop/flags/flag_table.h"
#include "framework/interop/flags/megatron_arguments.h"
#include "framework/interop/flags/megatron_rules.h"
#include "framework/recipe/recipe.h"
#include "tests/golden/comparison.h"
#include "tests/golden/data_cases.h"
#include "tests/golden/refusals.h"
#include "tests/golden/registries.h"

namespace tessera::golden {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> files = {"launch_scripts.jsonl", "model_args_yaml.jsonl"};
constexpr const char* refused_alike = "refused as there: ";

/// What there is to judge with.
struct Court {
  flags::FlagTable table = flags::FlagTable::named(flags::FlagTable::usual, options::Mappings());
  recipe::Registries registries = all_registries();
  options::Facts facts = recipe::all_facts(registries);
  Json defaults = {};
};

/// The command line less what the parser does not know: whole flags, and words behind the one that a flag takes.
std::vector<flags::GivenFlag> accepted(const Json& row, const flags::FlagTable& table) {
  const auto* words = row.contains("tokens_accepted") ? "tokens_accepted" : "tokens";
  auto given = flags::flags_of(row.at(words).get<std::vector<std::string>>());
  std::set<std::string> unknown;
  for (const std::string word : row.value("unknown", Json::array()))
    if (word.rfind("--", 0) == 0) unknown.insert(word.substr(0, word.find('=')));
  std::erase_if(given, [&](const auto& flag) { return unknown.count(flag.flag) > 0; });
  for (auto& flag : given)
    if (const auto* known = table.find(flag.flag); known && known->takes != flags::FlagRow::Takes::many)
      flag.values.resize(
          std::min<std::size_t>(flag.values.size(), known->takes == flags::FlagRow::Takes::none ? 0 : 1));
  return given;
}

/// What we make of a command line.
struct OurRun {
  std::string not_built;  ///< the first of its flags that is not supported; empty: all are
  options::Report report;
  Json arguments;
  std::set<std::string> without_effect;  ///< arguments that the chosen tokenizer, optimizer, ... does not read
  bool endless = false;  ///< nothing says how long it is: Megatron-LM takes that as well, until it makes schedules
};

bool is_endless(const options::Report& report) {
  const auto findings = report.findings();
  return findings.size() == 1 && findings[0].rule == "B7";
}

/// Megatron-LM asks this rule of the interleaved schedule when the first step runs, not of the arguments.
bool only_when_a_step_begins(const options::Report& report) {
  const auto findings = report.findings();
  return !findings.empty() &&
         std::all_of(findings.begin(), findings.end(), [](const auto& finding) { return finding.rule == "PAR14"; });
}

std::string cause_of(const flags::ConvertedFlag& flag) {
  return text(flags::word_of(flag.status), " ", flag.to.empty() ? flag.given.flag : flag.to.back());
}

OurRun judged(const std::vector<flags::GivenFlag>& flags, std::int64_t world, const Court& court) {
  OurRun run;
  options::Report of_flags;
  const auto conversion = court.table.convert(flags, court.facts, of_flags);
  flags::check_megatron_rules(flags, world, court.table, court.registries, run.report);
  for (const auto& flag : conversion.flags)
    if (run.not_built.empty() && flag.status != flags::FlagStatus::mapped && flag.status != flags::FlagStatus::ignored)
      run.not_built = cause_of(flag);
  if (!run.not_built.empty() || !run.report.good()) return run;
  for (const auto& flag : conversion.flags) {
    const auto* row = court.table.find(flag.given.flag);
    const bool kept =
        std::any_of(flag.to.begin(), flag.to.end(), [&](const auto& option) { return conversion.recipe.at(option); });
    if (row && flag.status == flags::FlagStatus::mapped && !flag.to.empty() && !kept)
      run.without_effect.insert(row->dest);
  }
  auto tree = conversion.recipe;
  auto recipe = recipe::read_recipe(tree, court.registries, run.report);
  if (is_endless(run.report)) {
    run.report = {};
    run.endless = true;
    tree.set("training_config.training_iters", options::Value::of("1", {"a stand-in", 0, "", 9}));
    recipe = recipe::read_recipe(tree, court.registries, run.report);
  }
  if (run.report.good()) recipe::check_ranks(recipe, world, run.report);
  if (run.report.good())
    run.arguments = Json::parse(flags::megatron_arguments(recipe, world, court.table, run.report).dump());
  return run;
}

bool alike(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.get<double>() == b.get<double>();
  return a == b;
}

void compare(const Json& row, const Court& court, const OurRun& run, Comparison& comparison) {
  auto ours = run.arguments;
  if (run.endless) ours["train_iters"] = nullptr;
  auto theirs = court.defaults;
  for (const auto& [name, value] : row.at("namespace").items()) theirs[name] = value;
  for (const std::string name : row.value("deleted", Json::array())) theirs.erase(name);
  const auto left_out = flags::arguments_left_out(court.table);
  for (const auto& [name, value] : theirs.items()) {
    if (left_out.count(name) || run.without_effect.count(name)) continue;
    if (!ours.contains(name)) {
      if (row.at("namespace").contains(name)) comparison.wrong(text(name, ": nobody says it here"));
    } else if (!alike(ours[name], value)) {
      comparison.wrong(text(name, " is ", ours[name].dump(), " instead of ", value.dump()));
    }
  }
}

std::string problems_of(const OurRun& run) {
  std::string all;
  for (const auto& finding : run.report.findings())
    all += text(all.empty() ? "" : "; ", "[", finding.rule, "] ", finding.message);
  return all;
}

/// Where the real one refuses, so must we, for the same rule. Empty: it is so.
std::string judge_refusal(const Refusal& theirs, const OurRun& ours) {
  for (const auto& finding : ours.report.findings())
    if (theirs.rules.count(finding.rule)) return "";
  if (!ours.not_built.empty()) throw NotSupported{ours.not_built};
  return text("refused there (", theirs.words, "), here ", ours.report.good() ? "taken" : problems_of(ours));
}

CaseResult judge(const Json& row, const Court& court) {
  CaseResult result{row.at("id"), CaseResult::Verdict::passed, ""};
  const auto ours = judged(accepted(row, court.table), row.at("world_size"), court);
  if (const auto theirs = refusal_in(row)) {
    result.summary = judge_refusal(*theirs, ours);
    if (!result.summary.empty()) result.verdict = CaseResult::Verdict::failed;
    if (result.summary.empty()) result.summary = refused_alike + theirs->words;
    return result;
  }
  if (!ours.not_built.empty()) throw NotSupported{ours.not_built};
  Comparison comparison;
  if (only_when_a_step_begins(ours.report)) {
    result.summary = "taken there until a step begins: " + problems_of(ours);
    return result;
  }
  for (const auto& finding : ours.report.findings())
    if (finding.rule == "not built") throw NotSupported{finding.message};
  if (!ours.report.good())
    comparison.wrong(text("taken there, refused here: ", problems_of(ours)));
  else
    compare(row, court, ours, comparison);
  if (!comparison.good()) result = {result.name, CaseResult::Verdict::failed, comparison.summary()};
  return result;
}

CaseResult judged_case(const Json& row, const Court& court) {
  const std::string name = row.at("id");
  try {
    return judge(row, court);
  } catch (const NotSupported& missing) {
    return {name, CaseResult::Verdict::not_supported, missing.what};
  } catch (const std::exception& error) {
    return {name, CaseResult::Verdict::failed, error.what()};
  }
}

std::string share(std::size_t part, std::size_t all) {
  std::ostringstream out;
  out << part << " of " << all << " (" << std::fixed << std::setprecision(1)
      << (all ? 100.0 * static_cast<double>(part) / static_cast<double>(all) : 0.0) << " %)";
  return out.str();
}

}  // namespace

bool is_command_lines(const fs::path& folder) {
  return fs::exists(folder / "defaults.json") &&
         std::any_of(files.begin(), files.end(), [&](const auto& file) { return fs::exists(folder / file); });
}

std::vector<CaseResult> run_command_line_cases(const fs::path& folder) {
  DataFolder data(folder);
  Court court;
  court.defaults = data.json("defaults.json");
  std::vector<CaseResult> results;
  for (const auto& file : files)
    if (data.has(file))
      for (const auto& row : data.lines(file)) results.push_back(judged_case(row, court));
  return results;
}

std::vector<std::string> shares_of_command_lines(const std::vector<CaseResult>& results) {
  std::size_t agree = 0, refused = 0, failed = 0, missing = 0;
  std::map<std::string, std::size_t> causes;
  for (const auto& result : results) {
    const bool passed = result.verdict == CaseResult::Verdict::passed;
    if (result.verdict == CaseResult::Verdict::failed) ++failed;
    if (passed) ++(result.summary.rfind(refused_alike, 0) == 0 ? refused : agree);
    if (result.verdict == CaseResult::Verdict::not_supported) ++missing, ++causes[result.summary];
  }
  std::vector<std::pair<std::size_t, std::string>> by_number;
  for (const auto& [cause, count] : causes) by_number.emplace_back(count, cause);
  std::sort(by_number.rbegin(), by_number.rend());
  const auto all = results.size();
  std::vector<std::string> lines = {text("command lines that agree entirely: ", share(agree, all)),
                                    text("refused there and here for the same cause: ", share(refused, all)),
                                    text("different: ", share(failed, all)),
                                    text("not supported: ", share(missing, all))};
  for (const auto& [count, cause] : by_number) lines.push_back(text("  ", count, "  ", cause));
  return lines;
}

}  // namespace tessera::golden
