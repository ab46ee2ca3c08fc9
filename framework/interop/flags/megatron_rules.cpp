#include "framework/interop/flags/megatron_rules.h"

#include <algorithm>
#include <set>

#include "framework/base/error.h"
#include "framework/interop/flags/flag_words.h"
#include "framework/interop/flags/megatron_rule_lists.h"
#include "framework/interop/flags/python_number.h"
#include "framework/interop/flags/source.h"
#include "framework/options/option_type.h"
#include "framework/options/report.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {
AskedFlags::AskedFlags(const std::vector<GivenFlag>& flags) {
  for (const auto& flag : flags) given_[flag.flag] = flag;
}

const GivenFlag* AskedFlags::find(const std::string& flag) const {
  const auto there = given_.find(flag);
  return there == given_.end() ? nullptr : &there->second;
}

bool AskedFlags::any(const std::vector<const char*>& flags) const {
  return std::any_of(flags.begin(), flags.end(), [&](const char* flag) { return has(flag); });
}

std::vector<std::string> AskedFlags::words(const std::string& flag) const {
  const auto* given = find(flag);
  return given ? given->values : std::vector<std::string>{};
}

std::string AskedFlags::word(const std::string& flag, const std::string& otherwise) const {
  const auto* given = find(flag);
  if (!given) return otherwise;
  return given->values.empty() ? "" : given->values[0];
}

double AskedFlags::real(const std::string& flag, double otherwise) const {
  if (!has(flag)) return otherwise;
  double value = 0;
  if (!options::OptionType<double>::read(options::Value::of(python_number(word(flag)), {}), value)) throw NotKnown{};
  return value;
}

std::int64_t AskedFlags::number(const std::string& flag, std::int64_t otherwise) const {
  if (!has(flag)) return otherwise;
  std::int64_t value = 0;
  if (!options::OptionType<std::int64_t>::read(options::Value::of(python_number(word(flag)), {}), value))
    throw NotKnown{};
  return value;
}

std::int64_t AskedFlags::counted_layers() const {
  return layers() + (has("--account-for-embedding-in-pipeline-split") ? 1 : 0) +
         (has("--account-for-loss-in-pipeline-split") ? 1 : 0);
}

std::string AskedFlags::positions() const {
  return has("--use-rotary-position-embeddings") ? "rope" : word("--position-embedding-type", "learned_absolute");
}

bool AskedFlags::interleaved() const {
  return any({"--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"});
}

std::string AskedFlags::recomputation() const {
  return has("--recompute-activations") ? "selective" : word("--recompute-granularity");
}

const std::vector<MegatronRule>& megatron_rules() {
  static const auto all = one_list({megatron_model_rules(), megatron_parallel_rules(), megatron_run_rules()});
  return all;
}

std::vector<const MegatronRule*> broken_megatron_rules(const std::vector<GivenFlag>& flags) {
  const AskedFlags asked(flags);
  const auto is_broken = [&asked](const MegatronRule& rule) {
    try {
      return rule.broken(asked);
    } catch (const AskedFlags::NotKnown&) {
      return false;
    }
  };
  std::vector<const MegatronRule*> broken;
  for (const auto& rule : megatron_rules())
    if (is_broken(rule)) broken.push_back(&rule);
  return broken;
}

const std::vector<std::string>& rules_of_recipes_and_megatron() {
  static const std::vector<std::string> all = {"M4",    "M6",   "M7",   "M8",   "M18",  "M22",   "REC2",  "REC3",
                                               "REC5",  "REC8", "MOE3", "MOE4", "MOE8", "MOE9",  "MOE10", "MOE11",
                                               "MOE12", "PAR1", "PAR4", "PAR6", "PAR7", "PAR16", "B2",    "B3",
                                               "B5",    "B6",   "O1",   "O2",   "MP1",  "MP6",   "C1",    "C7"};
  return all;
}

namespace {

/// "--num-layers 61, --pipeline-model-parallel-size 16"
std::string given_of(const MegatronRule& rule, const AskedFlags& asked) {
  std::string all;
  for (const auto& flag : rule.flags) {
    const auto* given = asked.find(flag);
    if (!given) continue;
    all += (all.empty() ? "" : ", ") + given->flag;
    for (std::size_t i = 0; i < given->values.size() && i < 4; ++i) all += " " + given->values[i];
  }
  return all;
}

const options::Origin nowhere{no_flag, 0, "", 0};

/// The recipe that those flags make which can be converted: the others would hide what rules say of these.
options::Value recipe_of(const std::vector<GivenFlag>& flags, const FlagTable& table, const options::Facts& facts) {
  options::Report unheard;
  auto conversion = table.convert(flags, facts, unheard);
  std::vector<GivenFlag> known;
  for (const auto& flag : conversion.flags)
    if (flag.status == FlagStatus::mapped || flag.status == FlagStatus::ignored) known.push_back(flag.given);
  return known.size() == flags.size() ? conversion.recipe : table.convert(known, facts, unheard).recipe;
}

/// What the rules of recipes find, except those that are not Megatron-LM's.
std::vector<options::Finding> found_in_recipe(const std::vector<GivenFlag>& flags, std::int64_t world,
                                              const FlagTable& table, const recipe::Registries& registries) {
  options::Report report;
  const auto recipe = recipe::read_recipe(recipe_of(flags, table, recipe::all_facts(registries)), registries, report);
  if (world > 0 && report.good()) recipe::check_ranks(recipe, world, report);
  auto findings = report.findings();
  const auto& theirs = rules_of_recipes_and_megatron();
  std::erase_if(findings, [&](const auto& finding) {
    return std::find(theirs.begin(), theirs.end(), finding.rule) == theirs.end();
  });
  return findings;
}

void report_rule(const MegatronRule& rule, const AskedFlags& asked, options::Report& report) {
  const GivenFlag* at = nullptr;
  for (const auto& flag : rule.flags)
    if (!at) at = asked.find(flag);
  const auto given = given_of(rule, asked);
  report.problem(at ? at->at : nowhere, rule.flags[0],
                 text("Megatron-LM stops here: ", rule.message, given.empty() ? "" : text(" (", given, ")")),
                 rule.advice, rule.name);
}

}  // namespace

void check_megatron_rules(const std::vector<GivenFlag>& flags, std::int64_t world, const FlagTable& table,
                          const recipe::Registries& registries, options::Report& report) {
  const FlagWords words(table, flags);
  const AskedFlags asked(flags);
  std::set<std::string> told;
  for (auto& finding : found_in_recipe(flags, world, table, registries)) {
    told.insert(finding.rule);
    words.put_into(finding);
    if (finding.at.line == 0 && !asked.has(finding.at.source)) finding.at = nowhere;
    report.problem(std::move(finding));
  }
  for (const auto* rule : broken_megatron_rules(flags))
    if (!told.count(rule->name)) report_rule(*rule, asked, report);
}

std::vector<options::Finding> megatron_stops(const Source& source, const recipe::Registries& registries) {
  if (source.from != FlagTable::usual || !source.undecided.empty()) return {};
  std::vector<GivenFlag> flags;
  for (const auto& flag : source.flags) flags.push_back(flag.given);
  options::Report report;
  check_megatron_rules(flags, 0, FlagTable::named(source.from, registries.mappings), registries, report);
  return report.findings();
}

}  // namespace tessera::flags
