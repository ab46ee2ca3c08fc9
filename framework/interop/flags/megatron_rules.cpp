#include "framework/interop/flags/megatron_rules.h"

#include <algorithm>

#include "framework/base/error.h"
#include "framework/interop/flags/megatron_rule_lists.h"
#include "framework/interop/flags/python_number.h"
#include "framework/options/option_type.h"

namespace tessera::flags {
namespace {

std::int64_t whole_number(const std::string& word) {
  std::int64_t value = 0;
  if (!options::OptionType<std::int64_t>::read(options::Value::of(python_number(word), {}), value))
    throw AskedFlags::NotKnown{};
  return value;
}

}  // namespace

AskedFlags::AskedFlags(const std::vector<GivenFlag>& flags, std::int64_t world) : world_(world) {
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
  return has(flag) ? whole_number(word(flag)) : otherwise;
}

std::vector<std::int64_t> AskedFlags::numbers(const std::string& flag) const {
  std::vector<std::int64_t> all;
  for (const auto& word : words(flag)) all.push_back(whole_number(word));
  return all;
}

std::int64_t AskedFlags::world() const {
  if (world_ <= 0) throw NotKnown{};
  return world_;
}

std::int64_t AskedFlags::replicas() const {
  return world() / std::max<std::int64_t>(1, tensor() * pipeline() * context());
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
  static const std::vector<MegatronRule> all = [] {
    std::vector<MegatronRule> rules;
    for (const auto* part : {&megatron_model_rules(), &megatron_parallel_rules(), &megatron_run_rules()})
      rules.insert(rules.end(), part->begin(), part->end());
    return rules;
  }();
  return all;
}

namespace {

bool broken(const MegatronRule& rule, const AskedFlags& asked) {
  try {
    return rule.broken(asked);
  } catch (const AskedFlags::NotKnown&) {
    return false;
  }
}

/// "--num-layers 61, --pipeline-model-parallel-size 16"
std::string given_of(const MegatronRule& rule, const AskedFlags& asked) {
  std::string all;
  for (const auto* flag : rule.flags) {
    const auto* given = asked.find(flag);
    if (!given) continue;
    all += (all.empty() ? "" : ", ") + given->flag;
    for (std::size_t i = 0; i < given->values.size() && i < 4; ++i) all += " " + given->values[i];
  }
  return all;
}

}  // namespace

void check_megatron_rules(const std::vector<GivenFlag>& flags, std::int64_t world, options::Report& report) {
  const AskedFlags asked(flags, world);
  for (const auto& rule : megatron_rules()) {
    if (!broken(rule, asked)) continue;
    const GivenFlag* at = nullptr;
    for (const auto* flag : rule.flags)
      if (!at) at = asked.find(flag);
    const auto given = given_of(rule, asked);
    report.problem(at ? at->at : options::Origin{no_flag, 0, "", 0}, rule.flags[0],
                   text("Megatron-LM stops here: ", rule.message, given.empty() ? "" : text(" (", given, ")")),
                   rule.advice, rule.name);
  }
}

}  // namespace tessera::flags
