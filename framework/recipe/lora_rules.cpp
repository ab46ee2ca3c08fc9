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
  std::vector<training::LoraPlan::Candidate> chosen;
  for (const auto& [module, parts] : model.layers.all)
    for (auto& one : plan.chosen(module, parts)) chosen.push_back(std::move(one));
  for (std::size_t i = 0; i < plan.targets().size(); ++i) {
    if (std::any_of(chosen.begin(), chosen.end(), [&](const auto& one) { return plan.names(i, one); })) continue;
    if (!chosen.empty() && names_excluded(plan, model, i)) continue;
    const auto* written = recipe.resolved.at(option);
    report.problem(written ? written->origin : options::Origin{}, option,
                   text("'", plan.targets()[i], "' selects no linear layer for an adapter"),
                   nearest_to(plan.targets()[i], known_names(plan, model)), targets_rule);
  }
}

/// Experts and routers have no adapters: a target that names one must not leave it frozen without a word.
void refuse_experts(const Recipe& recipe, const Contents& model, options::Report& report) {
  const std::vector<nn::LinearPart> parts = {{"gate_proj", {}}, {"up_proj", {}}};
  const std::string weight = ".weight", router = "router.weight";
  for (const auto& parameter : model.parameters) {
    const bool routes = parameter.ends_with(router);
    if (!routes && (parameter.find(".local_experts.") == std::string::npos || !parameter.ends_with(weight))) continue;
    const auto module = parameter.substr(0, parameter.size() - weight.size());
    if (recipe.adapters->chosen(module, parts).empty()) continue;
    tell(recipe, report, targets_rule,
         {in_lora + (recipe.adapters->options().target_cells ? "target_cells" : "target_modules")},
         text("'", module, "' is selected, but ", routes ? "routers" : "experts", " cannot have adapters"),
         "select layers of the attention by their names, linear_qkv and linear_proj, or leave it out with "
         "exclude_modules");
    return;
  }
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
  refuse_experts(recipe, *model, report);
  check_targets(recipe, *model, report);
  check_saved(recipe, *model, report);
  if (report.good()) check_saved_adapter(recipe, report);
}

}  // namespace tessera::recipe
