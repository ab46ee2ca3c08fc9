#include "framework/recipe/saved_adapter.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/error.h"
#include "framework/model/model.h"
#include "framework/options/group.h"
#include "framework/options/option_type.h"
#include "framework/options/schema.h"
#include "framework/recipe/adapted_model.h"
#include "framework/recipe/adapter_reader.h"
#include "framework/recipe/build.h"
#include "framework/recipe/module_aliases.h"
#include "framework/recipe/peft_adapter.h"
#include "framework/recipe/planned_options.h"
#include "framework/recipe/recipe.h"
#include "framework/recipe/rules.h"

namespace tessera::recipe {
namespace {

constexpr const char* agreement_rule = "saved adapter";
const std::string lora_group = "lora_config.";

/// The options of a folder.
model::LoraOptions options_of(const AdapterDescription& saved) {
  options::Value tree;
  tree.set("lora_config", saved.group());
  options::Report report;
  options::Group group(tree, "lora_config", report);
  auto lora = options::read_own<model::LoraOptions>(group);
  planned_options().read(group);
  group.finish();
  report.must_be_good();
  return lora;
}

/// What lora_config trains.
struct TrainedByLora {
  std::map<std::string, nn::AdapterForm> adapters;
  std::set<std::string> names;  ///< of all trained parameters
};

TrainedByLora trained_by(const Recipe& recipe) {
  const auto model = recipe.architecture->build(whole_model(recipe, 1));  // the vocabulary's size changes no names
  const auto names = trained_names(recipe);
  TrainedByLora trained;
  for (const auto* parameter : model->parameters())
    if (names.trains(parameter->name)) trained.names.insert(parameter->name);
  trained.adapters = adapters_of(recipe);
  return trained;
}

Recipe with_options(Recipe recipe, const model::LoraOptions& lora) {
  recipe.lora = lora;
  recipe.adapters = std::make_shared<const training::LoraPlan>(lora, module_aliases(recipe), module_list(recipe));
  return recipe;
}

/// The layer, or the part of one, that a factor is of.
std::string adapted_layer(const std::string& factor) { return factor.substr(0, factor.rfind(".lora_")); }

class Agreement {
 public:
  Agreement(const Recipe& recipe, const model::LoraOptions& saved, options::Report& report)
      : recipe_(recipe),
        folder_(*recipe.lora.adapter),
        saved_(saved),
        here_(trained_by(recipe)),
        there_(trained_by(with_options(recipe, saved))),
        report_(report) {}

  void check() {
    compare_layers();
    compare_ranks();
    compare_scales();
    compare_others();
  }

 private:
  void differ(const std::string& option, const std::string& message, const std::string& advice) {
    tell(recipe_, report_, agreement_rule, {lora_group + option, lora_group + "adapter"}, message, advice);
  }
  template <class T>
  bool differ_in(const std::string& option, const T& there, const T& here) {
    if (there == here) return false;
    const auto words = [](const T& value) { return text(options::OptionType<T>::write(value)); };
    differ(option, text("the adapter in ", folder_, " has ", option, " ", words(there), ", the recipe ", words(here)),
           text("give ", option, ": ", words(there)));
    return true;
  }
  /// The names that satisfy `counts` in `a` but not in `b`: "'x' and 3 more"; empty: none.
  template <class Counts>
  static std::string only_in(const std::set<std::string>& a, const std::set<std::string>& b, Counts counts) {
    std::set<std::string> found;
    for (const auto& name : a)
      if (counts(name) && !b.contains(name)) found.insert(nn::is_of_adapter(name) ? adapted_layer(name) : name);
    if (found.empty()) return "";
    return text("'", *found.begin(), "'", found.size() == 1 ? "" : text(" and ", found.size() - 1, " more"));
  }
  template <class Counts>
  void compare_names(const std::string& option, const std::string& what, Counts counts) {
    const auto more = only_in(there_.names, here_.names, counts), less = only_in(here_.names, there_.names, counts);
    if (more.empty() && less.empty()) return;
    std::string difference;
    if (!more.empty()) difference = text("has the ", what, " ", more, ", which the recipe does not train");
    if (!less.empty())
      difference += text(more.empty() ? "" : ", and ", "has no ", what, " ", less, ", which the recipe trains");
    differ(option, text("the adapter in ", folder_, " ", difference),
           text("give ", option, " as in the folder's adapter_config.json"));
  }

  void compare_layers() {
    compare_names(recipe_.lora.target_cells ? "target_cells" : "target_modules", "adapter of",
                  [](const auto& name) { return nn::is_of_adapter(name) && name.ends_with(".lora_A.weight"); });
  }
  /// Calls `differs(layer, there, here)` for the layers with adapters on both sides until it is true.
  template <class Differs>
  void find_pair(Differs differs) const {
    for (const auto& [layer, form] : there_.adapters)
      if (const auto found = here_.adapters.find(layer); found != here_.adapters.end())
        if (differs(layer, form, found->second)) return;
  }
  void compare_ranks() {
    find_pair([&](const auto& layer, const auto& there, const auto& here) {
      if (there.rank == here.rank) return false;
      if (!differ_in("lora_rank", saved_.lora_rank, recipe_.lora.lora_rank))
        differ("rank_pattern",
               text("the adapter of '", layer, "' in ", folder_, " has rank ", there.rank, ", the recipe ", here.rank),
               "give rank_pattern as in the folder's adapter_config.json");
      return true;
    });
  }
  void compare_scales() {
    find_pair([&](const auto& layer, const auto& there, const auto& here) {
      if (there.scale == here.scale) return false;
      const bool root = differ_in("use_rslora", saved_.use_rslora, recipe_.lora.use_rslora);
      const bool alpha = differ_in("lora_alpha", saved_.lora_alpha, recipe_.lora.lora_alpha);
      if (!root && !alpha && there.rank == here.rank)
        differ("alpha_pattern",
               text("the adapter of '", layer, "' in ", folder_, " has the scale ", there.scale, ", the recipe ",
                    here.scale),
               "give alpha_pattern as in the folder's adapter_config.json");
      return true;
    });
  }
  void compare_others() {
    const auto is_bias = [](const auto& name) { return name.ends_with(".bias"); };
    compare_names("bias", "bias", is_bias);
    compare_names("modules_to_save", "parameter",
                  [&](const auto& name) { return !nn::is_of_adapter(name) && !is_bias(name); });
  }

  const Recipe& recipe_;
  std::string folder_;
  const model::LoraOptions& saved_;
  TrainedByLora here_, there_;
  options::Report& report_;
};

}  // namespace

void check_saved_adapter(const Recipe& recipe, options::Report& report) {
  if (!recipe.adapters || !recipe.lora.adapter) return;
  const auto wrong = [&](const std::string& message, const std::string& advice) {
    tell(recipe, report, agreement_rule, {lora_group + "adapter"}, message, advice);
  };
  if (!recipe.registries->adapters) return wrong("adapter is given", checkpoint::no_interop);
  if (!recipe.training.load_checkpoint)
    return wrong("adapter is given, but load_checkpoint is null: an adapter belongs to a model",
                 "give training_config.load_checkpoint the folder of the model that the adapter was trained with");
  // A run that continues needs it no longer; one that starts says so when it reads it, as of load_checkpoint.
  if (!std::filesystem::exists(*recipe.lora.adapter)) return;
  if (!recipe.registries->adapters->is_adapter(*recipe.lora.adapter))
    return wrong(text(*recipe.lora.adapter, " has no adapter_config.json"), "give the folder of an adapter of PEFT");
  try {
    const auto described = recipe.registries->adapters->describe(*recipe.lora.adapter, recipe.mappings);
    const auto saved = options_of(described);
    Agreement(recipe, saved, report).check();
    const auto* written = recipe.resolved.at(lora_group + "adapter");
    if (auto note = note_of_other_base(*recipe.lora.adapter, described.base, *recipe.training.load_checkpoint);
        written && !note.empty())
      report.note(written->origin, std::move(note));
  } catch (const Error& error) {
    wrong(text("the adapter cannot be used: ", error.what()), "give the folder of an adapter of PEFT");
  }
}

}  // namespace tessera::recipe
