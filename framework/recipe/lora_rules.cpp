#include "framework/recipe/lora_rules.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/model/model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/freezing.h"
#include "framework/recipe/rules.h"
#include "framework/recipe/saved_adapter.h"
#include "framework/training/lora_plan.h"

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

/// The names that a user can have meant: last words for a list of names, else whole names.
std::vector<std::string> known_names(const training::LoraPlan& plan, const Contents& model) {
  const auto& target = plan.options().target_modules;
  const bool whole = !target || target->one_text;
  std::set<std::string> names;
  for (const auto& [module, parts] : model.layers.all)
    for (const auto& candidate : plan.candidates(module, parts))
      for (const auto& name : candidate.names) names.insert(whole ? name : last_word(name));
  return {names.begin(), names.end()};
}

void check_targets(const Recipe& recipe, const Contents& model, options::Report& report) {
  const auto& plan = *recipe.adapters;
  const auto option = in_lora + (plan.options().target_cells ? "target_cells" : "target_modules");
  std::vector<training::LoraPlan::Candidate> chosen;
  for (const auto& [module, parts] : model.layers.all)
    for (auto& one : plan.chosen(module, parts)) chosen.push_back(std::move(one));
  for (std::size_t i = 0; i < plan.targets().size(); ++i) {
    if (std::any_of(chosen.begin(), chosen.end(), [&](const auto& one) { return plan.names(i, one); })) continue;
    const auto* written = recipe.resolved.at(option);
    report.problem(written ? written->origin : options::Origin{}, option,
                   text("'", plan.targets()[i], "' selects no linear layer for an adapter"),
                   nearest_to(plan.targets()[i], known_names(plan, model)), targets_rule);
  }
  for (const auto& target : plan.options().target_parameters) {
    const auto names_it = [&](const auto& one) { return training::LoraPlan::names_parameter(target, one); };
    if (std::any_of(chosen.begin(), chosen.end(), names_it)) continue;
    tell(recipe, report, targets_rule, {in_lora + "target_parameters"},
         text("'", target, "' is the name of no weight that can have an adapter"),
         nearest_to(target, known_parameters(plan, model)));
  }
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
    return module.find(".local_experts.") != std::string::npos || module.ends_with(".router") ||
           training::is_of_vocabulary(module);
  });
  if (found.empty()) return;
  tell(
      recipe, report, targets_rule, {in_lora + "use_dora"},
      text(
          "use_dora is true, but '", found,
          "' gets an adapter, and adapters of experts, routers, the embedding and the output layer have no magnitudes"),
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
  for (const auto& parameter : model.parameters) known.insert(last_word(parameter.substr(0, parameter.rfind('.'))));
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
  if (report.good()) check_saved_adapter(recipe, report);
}

}  // namespace tessera::recipe
