#include "framework/recipe/trained_layers.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "framework/base/error.h"
#include "framework/recipe/freezing.h"
#include "framework/recipe/recipe.h"

namespace tessera::recipe {
namespace {

constexpr const char* every_module = "all";

/// The number of the decoder's layer that has the parameter; -1: none has it.
std::int64_t decoder_layer_of(const std::string& parameter) {
  std::int64_t layer = -1;
  const std::string begin = "decoder.layers.";
  if (parameter.starts_with(begin))
    std::from_chars(parameter.data() + begin.size(), parameter.data() + parameter.size(), layer);
  return layer;
}

/// What follows ".LAYER." in a name; empty: it has no such number.
std::string after_number(const std::string& name, std::int64_t layer) {
  const auto number = text(".", layer, ".");
  const auto at = name.find(number);
  return at == std::string::npos ? "" : name.substr(at + number.size());
}

/// Whether the parameter belongs to what precedes the language model. LLaMA-Factory leaves these towers frozen.
bool is_of_vision(const std::string& parameter) { return parameter.starts_with("vision_"); }

std::string listed(const std::set<std::string>& names) {
  std::string all;
  for (const auto& name : names) all += (all.empty() ? "" : ", ") + name;
  return all;
}

}  // namespace

TrainedLayers::TrainedLayers(const training::TrainingOptions& options, std::int64_t layers,
                             training::ModuleAliases aliases)
    : modules_(options.freeze_trainable_modules), extra_(options.freeze_extra_modules), aliases_(std::move(aliases)) {
  const auto count = options.freeze_trainable_layers.value_or(0);
  if (count > 0) first_ = layers - std::min(count, layers);
  end_ = count > 0 ? layers : std::min(-count, layers);
  std::replace(modules_.begin(), modules_.end(), std::string(every_module), std::string());
}

std::vector<std::string> TrainedLayers::names_of(const std::string& parameter) const {
  const auto dot = std::min(parameter.rfind('.'), parameter.size());
  std::vector<std::string> names;
  for (const auto& alias : aliases_(parameter.substr(0, dot)))
    if (alias.own) names.push_back(alias.parameter ? alias.name : alias.name + parameter.substr(dot));
  if (names.empty()) names.push_back(parameter);
  return names;
}

std::string TrainedLayers::module_in_layer(const std::string& parameter) const {
  const auto layer = decoder_layer_of(parameter);
  if (layer < 0) return "";
  const auto rest = after_number(names_of(parameter).front(), layer);
  return rest.substr(0, rest.find('.'));
}

std::string TrainedLayers::module_outside(const std::string& parameter) const {
  if (is_of_vision(parameter) || parameter.find(".layers.") != std::string::npos) return "";
  const auto name = names_of(parameter).front();
  const auto module = name.substr(0, std::min(name.rfind('.'), name.size()));
  return module.substr(module.rfind('.') + 1);
}

bool TrainedLayers::trains(const std::string& parameter) const {
  const auto layer = decoder_layer_of(parameter);
  const bool chosen = layer >= first_ && layer < end_;
  const auto names = is_of_vision(parameter) ? std::vector<std::string>() : names_of(parameter);
  return std::any_of(names.begin(), names.end(), [&](const auto& name) {
    const auto rest = chosen ? after_number(name, layer) : "";
    const auto begins = [&](const auto& module) { return !rest.empty() && rest.starts_with(module); };
    const auto contains = [&](const auto& module) { return name.find(module) != std::string::npos; };
    return std::any_of(modules_.begin(), modules_.end(), begins) || std::any_of(extra_.begin(), extra_.end(), contains);
  });
}

void check_trained_layers(const Recipe& recipe, const std::vector<std::string>& parameters, options::Report& report) {
  if (!recipe.trained_layers) return;
  const auto& layers = *recipe.trained_layers;
  std::set<std::string> inside, outside;
  for (const auto& parameter : parameters) {
    inside.insert(layers.module_in_layer(parameter));
    outside.insert(layers.module_outside(parameter));
  }
  for (auto* names : {&inside, &outside}) names->erase("");
  const auto check = [&](const std::string& option, const std::vector<std::string>& given,
                         const std::set<std::string>& known, const std::string& kind, const std::string& more) {
    for_items(recipe, option, given, [&](const auto& name, const auto& at) {
      if (known.contains(name) || more == name) return;
      report.problem(at, option, text("'", name, "' is no module ", kind, " of this model"),
                     text("give ", more, more.empty() ? "" : ", or ", "some of ", listed(known)), freezing_rule);
    });
  };
  check("training_config.freeze_trainable_modules", recipe.training.freeze_trainable_modules, inside, "of a layer",
        every_module);
  check("training_config.freeze_extra_modules", recipe.training.freeze_extra_modules, outside, "outside of the layers",
        "");
}

}  // namespace tessera::recipe
