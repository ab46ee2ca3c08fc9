#include "framework/recipe/lora_rules.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/freezing.h"
#include "framework/recipe/rules.h"
#include "framework/recipe/saved_adapter.h"
#include "framework/training/state/lora_plan.h"

namespace tessera::recipe {
namespace {

constexpr const char* targets_rule = "LoRA targets";
const std::string in_lora = "lora_config.";

/// Notes the layers that could have adapters, and gives them none.
class Layers final : public nn::AdapterPlan {
 public:
  std::vector<nn::AdapterForm> adapters_of(const std::string& module, std::int64_t,
                                           std::span<const nn::LinearPart> parts) const override {
    all.emplace_back(module, std::vector<nn::LinearPart>(parts.begin(), parts.end()));
    return {};
  }
  mutable std::vector<std::pair<std::string, std::vector<nn::LinearPart>>> all;
};

/// What a model has: its layers, and the names of its parameters without adapters.
struct Contents {
  Layers layers;
  std::vector<std::string> parameters;
};

std::shared_ptr<const Contents> contents(const Recipe& recipe) {
  auto all = std::make_shared<Contents>();
  auto parts = whole_model(recipe, 1);  // the vocabulary's size changes no names
  parts.adapters = std::shared_ptr<const nn::AdapterPlan>(all, &all->layers);
  const auto model = recipe.architecture->build(parts);
  for (const auto* parameter : model->parameters()) all->parameters.push_back(parameter->name);
  return all;
}

std::string holder_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

std::string last_word(const std::string& name) { return name.substr(name.rfind('.') + 1); }

/// The last two words of a name: "experts.down_proj".
std::string last_words(const std::string& name) {
  const auto last = name.rfind('.');
  const auto before = last == std::string::npos || last == 0 ? last : name.rfind('.', last - 1);
  return before == std::string::npos ? name : name.substr(before + 1);
}

/// The names that a user can have meant in target_parameters.
std::vector<std::string> known_parameters(const training::LoraPlan& plan, const Contents& model) {
  std::set<std::string> names;
  for (const auto& [module, parts] : model.layers.all)
    for (const auto& candidate : plan.candidates(module, parts)) {
      for (const auto& name : candidate.parameters) names.insert(last_words(name));
      for (const auto& name : candidate.names) names.insert(last_word(name) + ".weight");
    }
  return {names.begin(), names.end()};
}

/// The names that a user can have meant: whole names, or their last words.
std::vector<std::string> known_names(const training::LoraPlan& plan, const Contents& model, bool whole) {
  std::set<std::string> names;
  for (const auto& [module, parts] : model.layers.all)
    for (const auto& candidate : plan.candidates(module, parts))
      for (const auto& name : candidate.names) names.insert(whole ? name : last_word(name));
  return {names.begin(), names.end()};
}

/// What to do about a target that selects nothing.
std::string advice_for(const training::LoraPlan& plan, const Contents& model, const std::string& target) {
  const std::string output = "output_layer";
  const auto is_output = [&](const auto& layer) { return layer.first == output; };
  const auto name = last_word(target);
  if ((name == "lm_head" || name == output) &&
      std::none_of(model.layers.all.begin(), model.layers.all.end(), is_output))
    return text("the output layer is tied to the embedding: leave ", name,
                " out, or train their table: modules_to_save: [embed_tokens, lm_head]");
  const auto& modules = plan.options().target_modules;
  if (modules && !modules->one_text) return nearest_to(target, known_names(plan, model, false));
  // Of a pattern, the word at its end, if it has one, is that of a layer.
  const auto is_of_word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
  const auto word = std::find_if_not(target.rbegin(), target.rend(), is_of_word).base();
  if (word == target.end()) return nearest_to(target, known_names(plan, model, true));
  return nearest_to(std::string(word, target.end()), known_names(plan, model, false));
}

std::vector<training::LoraPlan::Candidate> all_chosen(const training::LoraPlan& plan, const Contents& model) {
  std::vector<training::LoraPlan::Candidate> all;
  for (const auto& [module, parts] : model.layers.all)
    for (auto& one : plan.chosen(module, parts)) all.push_back(std::move(one));
  return all;
}

options::Origin origin_of(const Recipe& recipe, const std::string& option) {
  const auto* written = recipe.resolved.at(option);
  return written ? written->origin : options::Origin{};
}

/// Whether a target names only what is left out by other options, as PEFT allows it beside targets that select layers.
bool names_excluded(const training::LoraPlan& plan, const Contents& model, std::size_t target) {
  for (const auto& [module, parts] : model.layers.all) {
    const auto all = plan.candidates(module, parts);
    for (const auto& one : all)
      if (plan.names(target, one) && plan.excluded(module, one, all)) return true;
  }
  return false;
}

void check_targets(const Recipe& recipe, const Contents& model, options::Report& report) {
  const auto& plan = *recipe.adapters;
  const auto option = in_lora + (plan.options().target_cells ? "target_cells" : "target_modules");
  const auto chosen = all_chosen(plan, model);
  for (std::size_t i = 0; i < plan.targets().size(); ++i) {
    if (std::any_of(chosen.begin(), chosen.end(), [&](const auto& one) { return plan.names(i, one); })) continue;
    if (!chosen.empty() && names_excluded(plan, model, i)) continue;
    report.problem(origin_of(recipe, option), option,
                   text("'", plan.targets()[i], "' selects no linear layer for an adapter"),
                   names_excluded(plan, model, i)
                       ? "exclude_modules or layers_to_transform leaves out each layer that it names; leave out fewer"
                       : advice_for(plan, model, plan.targets()[i]),
                   targets_rule);
  }
  for (const auto& target : plan.options().target_parameters) {
    const auto names_it = [&](const auto& one) { return training::LoraPlan::names_parameter(target, one); };
    if (std::any_of(chosen.begin(), chosen.end(), names_it)) continue;
    tell(recipe, report, targets_rule, {in_lora + "target_parameters"},
         text("'", target, "' is the name of no weight that can have an adapter"),
         nearest_to(target, known_parameters(plan, model)));
  }
}

/// Weights that PEFT can give an adapter, as a convolution that is a product of patches here.
bool is_without_adapters(const Contents& model, const std::string& module) {
  const auto is_it = [&](const auto& layer) { return layer.first == module; };
  return module.find("norm") == std::string::npos &&
         std::none_of(model.layers.all.begin(), model.layers.all.end(), is_it);
}

void note_without_adapters(const Recipe& recipe, const Contents& model, options::Report& report) {
  const auto& plan = *recipe.adapters;
  for (const auto& parameter : model.parameters) {
    const auto module = holder_of(parameter);
    if (!parameter.ends_with(".weight") || !is_without_adapters(model, module)) continue;
    const auto candidate = plan.candidates(module, {})[0];
    if (plan.excluded(module, candidate, {&candidate, 1})) continue;
    for (std::size_t i = 0; !plan.is_all_linear() && i < plan.targets().size(); ++i)
      if (plan.names(i, candidate))
        report.note(origin_of(recipe, in_lora + "target_modules"),
                    text("target_modules: '", plan.targets()[i], "' also names ", candidate.names.back(), " (", module,
                         "), which gets no adapter: PEFT has one for it, but here it is no linear layer"));
  }
}

/// As PEFT, which warns if exclude_modules leaves out nothing; here of each name.
void note_unused_exclusions(const Recipe& recipe, const Contents& model, options::Report& report) {
  const auto& plan = *recipe.adapters;
  const auto& excluded = plan.options().exclude_modules;
  for (std::size_t item = 0; excluded && item < excluded->names.size(); ++item) {
    std::set<std::string> names;
    bool used = false;
    for (const auto& [module, parts] : model.layers.all)
      for (const auto& candidate : plan.candidates(module, parts)) {
        used = used || plan.excludes(item, candidate);
        for (const auto& name : candidate.names) names.insert(excluded->one_text ? name : last_word(name));
      }
    const auto is_module = [&](const auto& parameter) {
      return plan.excludes(item, plan.candidates(holder_of(parameter), {})[0]);
    };
    if (used || std::any_of(model.parameters.begin(), model.parameters.end(), is_module)) continue;
    const auto& name = excluded->names[item];
    report.note(
        origin_of(recipe, in_lora + "exclude_modules"),
        text("exclude_modules: '", name, "' is the name of no layer that can have an adapter, so it leaves out ",
             "none; ", nearest_to(name, {names.begin(), names.end()}),
             excluded->one_text ? "" : ". A pattern, as '.*visual.*', leaves out all layers of a module"));
  }
}

void note_unused_patterns(const Recipe& recipe, const Contents& model, options::Report& report) {
  for (const auto& pattern : recipe.adapters->unused_patterns(all_chosen(*recipe.adapters, model)))
    report.note(origin_of(recipe, in_lora + pattern.substr(0, pattern.find(':'))),
                text(pattern, " is the name of no layer with an adapter, so it changes none"));
}

/// The layers, or parts of them, with adapters of which nothing is trained.
std::set<std::string> frozen_adapters(const Recipe& recipe) {
  const auto trained = trained_names(recipe);
  std::set<std::string> frozen, changed;
  const auto model = recipe.architecture->build(whole_model(recipe, 1));
  for (const auto* parameter : model->parameters())
    if (nn::is_of_adapter(parameter->name))
      (trained.changes(parameter->name) ? changed : frozen)
          .insert(parameter->name.substr(0, parameter->name.rfind(".lora_")));
  for (const auto& layer : changed) frozen.erase(layer);
  return frozen;
}

/// Patterns that freeze a module also match the names of adapters in it.
void note_frozen_adapters(const Recipe& recipe, const Contents& model, options::Report& report) {
  if (recipe.training.frozen_parameters.empty()) return;
  const auto& plan = *recipe.adapters;
  const auto frozen = frozen_adapters(recipe);
  if (frozen.empty()) return;
  const auto chosen = all_chosen(plan, model);
  const auto is_frozen = [&](const auto& one) { return frozen.contains(one.names[0]); };
  std::string targets;
  for (std::size_t i = 0; i < plan.targets().size(); ++i)
    if (std::all_of(chosen.begin(), chosen.end(),
                    [&](const auto& one) { return !plan.names(i, one) || is_frozen(one); }))
      targets += (targets.empty() ? "; only such layers are selected by " : ", ") + plan.targets()[i];
  report.note(origin_of(recipe, "training_config.frozen_parameters"),
              text("frozen_parameters also freezes the adapters of ", frozen.size(), " of ", chosen.size(),
                   " layers with one, such as ", *frozen.begin(), ", which keep their initial values", targets,
                   "; leave these layers out with lora_config.exclude_modules"));
}

/// The first layer with an adapter that `is_such` holds for; empty: there is none.
template <class IsSuch>
std::string adapted_layer(const training::LoraPlan& plan, const Contents& model, const IsSuch& is_such) {
  for (const auto& [module, parts] : model.layers.all)
    if (is_such(module) && !plan.chosen(module, parts).empty()) return module;
  return "";
}

/// Magnitudes multiply what a linear layer computes; these modules compute their outputs in other operations.
void check_magnitudes(const Recipe& recipe, const Contents& model, options::Report& report) {
  if (!recipe.adapters->options().use_dora) return;
  const auto found = adapted_layer(*recipe.adapters, model, [](const auto& module) {
    return module.find(".local_experts.") != std::string::npos || module.ends_with(".router");
  });
  if (found.empty()) return;
  tell(recipe, report, targets_rule, {in_lora + "use_dora"},
       text("use_dora is true, but '", found,
            "' gets an adapter, and adapters of experts and routers have no magnitudes: PEFT has none there either"),
       "leave use_dora out, or leave that module out with exclude_modules");
}

/// Layers of multi-token prediction embed tokens on another pipeline stage.
void check_embedding(const Recipe& recipe, const Contents& model, options::Report& report) {
  if (recipe.architecture->predictions() == 0) return;
  const auto found =
      adapted_layer(*recipe.adapters, model, [](const auto& module) { return module == "embedding.word_embeddings"; });
  if (found.empty()) return;
  tell(recipe, report, targets_rule, {"model_config.mtp_num_layers"},
       text("'", found,
            "' gets an adapter, but the model has multi-token prediction, whose layers would read the "
            "embedding without it"),
       "train the embedding itself with modules_to_save, or leave mtp_num_layers out");
}

void check_saved(const Recipe& recipe, const Contents& model, options::Report& report) {
  const auto& plan = *recipe.adapters;
  const auto& saved = plan.options().modules_to_save;
  if (saved.empty()) return;
  const auto option = in_lora + "modules_to_save";
  const std::string words = "embedding.word_embeddings.weight", head = "output_layer.weight";
  const auto has = [&](const auto& name) {
    return std::find(model.parameters.begin(), model.parameters.end(), name) != model.parameters.end();
  };
  const bool tied = has(words) && !has(head);
  if (tied && plan.saves(words) != plan.saves(head))
    tell(recipe, report, targets_rule, {option},
         text("modules_to_save names ",
              plan.saves(words) ? "the embedding but not the output layer" : "the output layer but not the embedding",
              ", but the two are tied: they are one table"),
         "name both, or set untie_embeddings_and_output_weights");
  std::set<std::string> known;
  for (const auto& parameter : model.parameters) known.insert(last_word(holder_of(parameter)));
  for (const auto& module : saved) {
    const auto names_it = [&](const auto& name) { return plan.saves(module, name); };
    if (std::any_of(model.parameters.begin(), model.parameters.end(), names_it) || (tied && names_it(head))) continue;
    tell(recipe, report, targets_rule, {option}, text("'", module, "' is the name of no module"),
         nearest_to(module, {known.begin(), known.end()}));
  }
}

}  // namespace

void check_lora(const Recipe& recipe, options::Report& report) {
  if (!recipe.adapters || !report.good()) return;
  const auto model = contents(recipe);
  check_targets(recipe, *model, report);
  check_magnitudes(recipe, *model, report);
  check_embedding(recipe, *model, report);
  check_saved(recipe, *model, report);
  if (!report.good()) return;
  note_without_adapters(recipe, *model, report);
  note_unused_exclusions(recipe, *model, report);
  note_unused_patterns(recipe, *model, report);
  note_frozen_adapters(recipe, *model, report);
  check_saved_adapter(recipe, report);
}

}  // namespace tessera::recipe
