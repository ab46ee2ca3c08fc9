#include "framework/training/lora_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

namespace tessera::training {
namespace {

NamePattern pattern_of(const std::string& option, const std::string& words, const std::string& pattern) {
  try {
    return NamePattern(pattern);
  } catch (const ConfigError& error) {
    throw ConfigError(text(option, " has the pattern '", words, "', which cannot be read: ", error.what()));
  }
}

/// As PEFT: the end of a name from a dot, or from its beginning.
std::vector<std::pair<NamePattern, std::int64_t>> of_ends(const std::string& option,
                                                          const model::NumbersByPattern& numbers) {
  std::vector<std::pair<NamePattern, std::int64_t>> all;
  for (const auto& [pattern, number] : numbers.all)
    all.emplace_back(pattern_of(option, pattern, "(?:.*\\.)?(?:" + pattern + ")"), number);
  return all;
}

/// Whether `name` is `end`, or ends with it after a dot.
bool ends_in(const std::string& name, const std::string& end) { return name == end || name.ends_with("." + end); }

bool any_ends_in(const std::vector<std::string>& names, const std::string& end) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return ends_in(name, end); });
}

bool any_matches_one(const NamePattern& pattern, const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(), [&](const auto& name) { return pattern.matches(name); });
}

/// The number of the transformer layer that a module is in; -1: in none.
std::int64_t layer_of(const std::string& module) {
  const std::string word = "layers.";
  const auto at = module.find(word);
  std::int64_t number = -1;
  if (at != std::string::npos && !module.starts_with("mtp."))
    std::from_chars(module.data() + at + word.size(), module.data() + module.size(), number);
  return number;
}

constexpr const char *word_embeddings = "embedding.word_embeddings", *output_layer_module = "output_layer";

nn::Init uniform_of(std::int64_t inputs) { return nn::Init::uniform(1 / std::sqrt(static_cast<double>(inputs))); }

}  // namespace

bool is_of_vocabulary(const std::string& module) { return module == word_embeddings || module == output_layer_module; }

LoraPlan::LoraPlan(const model::LoraOptions& options, ModuleAliases aliases)
    : o_(options),
      aliases_(std::move(aliases)),
      ranks_(of_ends("lora_config.rank_pattern", options.rank_pattern)),
      alphas_(of_ends("lora_config.alpha_pattern", options.alpha_pattern)) {
  const Size size{o_.lora_rank, o_.lora_alpha};
  if (o_.target_cells) {
    for (const auto& cell : *o_.target_cells)
      for (const auto& pattern : cell.patterns) {
        targets_.push_back(pattern);
        patterns_.push_back(pattern_of("lora_config.target_cells", pattern, pattern));
        sizes_.push_back({cell.rank.value_or(size.rank), cell.alpha.value_or(size.alpha)});
      }
  } else if (o_.target_modules) {
    targets_ = o_.target_modules->names;
    sizes_.assign(targets_.size(), size);
    all_linear_ = o_.target_modules->one_text && targets_[0] == "all-linear";
    if (o_.target_modules->one_text && !all_linear_)
      patterns_.push_back(pattern_of("lora_config.target_modules", targets_[0], targets_[0]));
  }
  if (o_.exclude_modules && o_.exclude_modules->one_text)
    excluded_ = pattern_of("lora_config.exclude_modules", o_.exclude_modules->names[0], o_.exclude_modules->names[0]);
}

bool LoraPlan::names(std::size_t target, const Candidate& candidate) const {
  if (all_linear_) return !candidate.part && !is_of_vocabulary(candidate.names[0]);
  if (!patterns_.empty()) return any_matches_one(patterns_[target], candidate.names);
  return any_ends_in(candidate.names, targets_[target]);
}

bool LoraPlan::names_parameter(const std::string& target, const Candidate& candidate) {
  const std::string weight = ".weight";
  if (any_ends_in(candidate.parameters, target)) return true;
  if (!target.ends_with(weight)) return false;
  return any_ends_in(candidate.names, target.substr(0, target.size() - weight.size()));
}

std::optional<LoraPlan::Size> LoraPlan::target_size_of(const Candidate& candidate) const {
  for (auto target = targets_.size(); target-- > 0;)
    if (names(target, candidate)) return sizes_[target];
  const auto& parameters = o_.target_parameters;
  if (std::any_of(parameters.begin(), parameters.end(),
                  [&](const auto& one) { return names_parameter(one, candidate); }))
    return Size{o_.lora_rank, o_.lora_alpha};
  return std::nullopt;
}

std::optional<LoraPlan::Size> LoraPlan::size_of(const Candidate& candidate) const {
  auto size = target_size_of(candidate);
  if (!size) return size;
  // As PEFT: what would be two adapters, of gate and up, is one of twice the rank with the same scale alpha / r.
  if (all_linear_ && candidate.gate_and_up) size = {2 * size->rank, 2 * size->alpha};
  return Size{by_pattern(ranks_, candidate, size->rank), by_pattern(alphas_, candidate, size->alpha)};
}

std::int64_t LoraPlan::by_pattern(const std::vector<std::pair<NamePattern, std::int64_t>>& patterns,
                                  const Candidate& candidate, std::int64_t otherwise) const {
  const auto found = std::find_if(patterns.begin(), patterns.end(), [&](const auto& one) {
    return any_matches_one(one.first, candidate.names) || any_matches_one(one.first, candidate.parameters);
  });
  return found == patterns.end() ? otherwise : found->second;
}

bool LoraPlan::excluded(const std::string& module, const Candidate& candidate) const {
  if (const auto& layers = o_.layers_to_transform;
      layers && std::find(layers->begin(), layers->end(), layer_of(module)) == layers->end())
    return true;
  if (excluded_) return any_matches_one(*excluded_, candidate.names);
  if (!o_.exclude_modules) return false;
  const auto& ends = o_.exclude_modules->names;
  return std::any_of(ends.begin(), ends.end(), [&](const auto& end) { return any_ends_in(candidate.names, end); });
}

std::vector<LoraPlan::Candidate> LoraPlan::candidates(const std::string& module,
                                                      std::span<const nn::LinearPart> parts) const {
  std::vector<Candidate> all = {{std::nullopt, {module}}};
  for (const auto& part : parts) all.push_back({part, {module + "." + part.name}});
  all[0].gate_and_up = parts.size() == 2 && module.find(".local_experts.") != std::string::npos;
  for (auto& alias : aliases_(module)) {
    if (alias.part >= all.size()) continue;
    auto& one = all[alias.part];
    (alias.parameter ? one.parameters : one.names).push_back(std::move(alias.name));
  }
  return all;
}

std::vector<LoraPlan::Candidate> LoraPlan::chosen(const std::string& module,
                                                  std::span<const nn::LinearPart> parts) const {
  if (saves(module + ".weight")) return {};
  auto all = candidates(module, parts);
  std::erase_if(all, [&](const auto& one) { return excluded(module, one) || !size_of(one); });
  if (all.size() < 2 || all[0].part) return all;
  const bool by_our_name = all_linear_ || size_of({std::nullopt, {module}}).has_value();
  if (by_our_name)
    all.resize(1);
  else
    all.erase(all.begin());
  return all;
}

std::vector<nn::AdapterForm> LoraPlan::adapters_of(const std::string& module, std::int64_t in,
                                                   std::span<const nn::LinearPart> parts) const {
  std::vector<nn::AdapterForm> forms;
  for (const auto& one : chosen(module, parts)) {
    const auto size = *size_of(one);
    nn::AdapterForm form{.part = one.part.value_or(nn::LinearPart{}),
                         .rank = size.rank,
                         .scale = o_.scale(size.rank, size.alpha),
                         .dropout = o_.lora_dropout};
    const bool normal = o_.init_lora_weights == model::LoraInit::gaussian;
    form.a_init = normal ? nn::Init::normal(1 / static_cast<double>(size.rank)) : uniform_of(in);
    if (o_.init_lora_weights == model::LoraInit::random) form.b_init = uniform_of(size.rank);
    if (module == word_embeddings) {  // as PEFT: B begins with random numbers, not A
      form.a_init = o_.init_lora_weights == model::LoraInit::random ? nn::Init::normal(1) : nn::Init::zeros();
      form.b_init = nn::Init::normal(1);
    }
    form.magnitudes = o_.use_dora;
    forms.push_back(std::move(form));
  }
  return forms;
}

bool LoraPlan::saves(const std::string& parameter) const {
  return std::any_of(o_.modules_to_save.begin(), o_.modules_to_save.end(),
                     [&](const auto& module) { return saves(module, parameter); });
}

bool LoraPlan::saves(const std::string& module, const std::string& parameter) const {
  if (nn::is_of_adapter(parameter)) return false;
  return any_ends_in(candidates(parameter.substr(0, parameter.rfind('.')), {})[0].names, module);
}

}  // namespace tessera::training
