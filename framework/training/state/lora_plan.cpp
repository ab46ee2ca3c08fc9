#include "framework/training/state/lora_plan.h"

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

std::string end_of_name(const std::string& pattern) { return "(?:.*\\.)?(?:" + pattern + ")"; }

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

LoraPlan::LoraPlan(const model::LoraOptions& options, ModuleAliases aliases, ModuleList modules)
    : o_(options), aliases_(std::move(aliases)), modules_(std::move(modules)) {
  const Size size{o_.lora_rank, o_.lora_alpha};
  const auto wanted = [](const std::string& option, const std::string& words, bool is_pattern) {
    return Wanted{words, is_pattern ? std::optional(pattern_of(option, words, words)) : std::nullopt};
  };
  // As PEFT: the end of a name from a dot, or from its beginning.
  for (const auto& [pattern, rank] : o_.rank_pattern.all)
    ranks_.emplace_back(Wanted{pattern, pattern_of("lora_config.rank_pattern", pattern, end_of_name(pattern))}, rank);
  for (const auto& [pattern, alpha] : o_.alpha_pattern.all)
    alphas_.emplace_back(Wanted{pattern, pattern_of("lora_config.alpha_pattern", pattern, end_of_name(pattern))},
                         alpha);
  if (o_.target_cells) {
    for (const auto& cell : *o_.target_cells)
      for (const auto& pattern : cell.patterns) {
        targets_.push_back(pattern);
        wanted_.push_back(wanted("lora_config.target_cells", pattern, true));
        sizes_.push_back({cell.rank.value_or(size.rank), cell.alpha.value_or(size.alpha)});
      }
  } else if (o_.target_modules) {
    targets_ = o_.target_modules->names;
    sizes_.assign(targets_.size(), size);
    all_linear_ = o_.target_modules->one_text && targets_[0] == "all-linear";
    for (const auto& target : targets_)
      wanted_.push_back(wanted("lora_config.target_modules", target, o_.target_modules->one_text && !all_linear_));
  }
  if (o_.exclude_modules)
    for (const auto& name : o_.exclude_modules->names)
      excluded_.push_back(wanted("lora_config.exclude_modules", name, o_.exclude_modules->one_text));
}

bool LoraPlan::Wanted::is_in(const std::vector<std::string>& names) const {
  return pattern ? any_matches_one(*pattern, names) : any_ends_in(names, end);
}

const std::vector<ModuleAlias>& LoraPlan::aliases_of(const std::string& module) const {
  const std::lock_guard lock(asking_);
  const auto found = found_aliases_.find(module);
  return found != found_aliases_.end() ? found->second : found_aliases_.emplace(module, aliases_(module)).first->second;
}

void LoraPlan::find_own() const {
  std::vector<std::string> names;
  for (const auto& module : modules_())
    for (const auto& alias : aliases_of(module))
      if (alias.own && !alias.parameter) names.push_back(alias.name);
  const auto find = [&](Wanted& wanted) { wanted.own = wanted.is_in(names); };
  std::ranges::for_each(wanted_, find);
  std::ranges::for_each(excluded_, find);
  for (auto* numbers : {&ranks_, &alphas_})
    for (auto& one : *numbers) find(one.first);
}

bool LoraPlan::matches(const Wanted& wanted, const Candidate& candidate) const {
  std::call_once(own_found_, [this] { find_own(); });
  if (!wanted.own) return wanted.is_in(candidate.names);
  return wanted.is_in(candidate.own.empty() ? std::vector{candidate.names[0]} : candidate.own);
}

bool LoraPlan::names(std::size_t target, const Candidate& candidate) const {
  if (all_linear_) return candidate.linear && !is_of_vocabulary(candidate.names[0]);
  return matches(wanted_[target], candidate);
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

bool LoraPlan::matches_size(const Wanted& wanted, const Candidate& candidate) const {
  return matches(wanted, candidate) || wanted.is_in(candidate.parameters);
}

std::int64_t LoraPlan::by_pattern(const NumbersOf& patterns, const Candidate& candidate, std::int64_t otherwise) const {
  const auto found = std::find_if(patterns.begin(), patterns.end(),
                                  [&](const auto& one) { return matches_size(one.first, candidate); });
  return found == patterns.end() ? otherwise : found->second;
}

std::vector<std::string> LoraPlan::unused_patterns(const std::vector<Candidate>& chosen) const {
  std::vector<std::string> unused;
  for (const auto& [option, patterns] : {std::pair{"rank_pattern", &ranks_}, std::pair{"alpha_pattern", &alphas_}})
    for (const auto& pattern : *patterns) {
      const auto& wanted = pattern.first;
      if (std::none_of(chosen.begin(), chosen.end(), [&](const auto& one) { return matches_size(wanted, one); }))
        unused.push_back(text(option, ": '", wanted.end, "'"));
    }
  return unused;
}

bool LoraPlan::excluded(const std::string& module, const Candidate& one, std::span<const Candidate> all) const {
  return is_left_out(module, one) || is_left_out(module, all.front());  // the first is the whole layer
}

bool LoraPlan::is_left_out(const std::string& module, const Candidate& candidate) const {
  if (const auto& layers = o_.layers_to_transform;
      layers && std::find(layers->begin(), layers->end(), layer_of(module)) == layers->end())
    return true;
  return std::any_of(excluded_.begin(), excluded_.end(), [&](const auto& one) { return matches(one, candidate); });
}

bool LoraPlan::excludes(std::size_t item, const Candidate& candidate) const {
  return matches(excluded_[item], candidate);
}

std::vector<LoraPlan::Candidate> LoraPlan::candidates(const std::string& module,
                                                      std::span<const nn::LinearPart> parts) const {
  const auto& aliases = aliases_of(module);
  const bool of_expert = module.find(".local_experts.") != std::string::npos;  // Transformers 5 has them fused
  const bool apart = !parts.empty() && !of_expert && std::any_of(aliases.begin(), aliases.end(), [](const auto& alias) {
    return alias.own && alias.part > 0;
  });
  std::vector<Candidate> all = {{.names = {module}, .linear = !apart, .gate_and_up = of_expert && parts.size() == 2}};
  for (const auto& part : parts) all.push_back({.part = part, .names = {module + "." + part.name}, .linear = apart});
  for (const auto& alias : aliases) {
    if (alias.part >= all.size()) continue;
    auto& one = all[alias.part];
    if (alias.own && !alias.parameter) one.own.push_back(alias.name);
    (alias.parameter ? one.parameters : one.names).push_back(alias.name);
  }
  return all;
}

std::vector<LoraPlan::Candidate> LoraPlan::chosen(const std::string& module,
                                                  std::span<const nn::LinearPart> parts) const {
  if (saves(module + ".weight")) return {};
  const auto every = candidates(module, parts);
  auto all = every;
  std::erase_if(all, [&](const auto& one) { return excluded(module, one, every) || !size_of(one); });
  if (all.size() < 2 || all[0].part) return all;
  if (size_of({.names = {module}}))  // by our name
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
