#include "framework/recipe/freezing.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "framework/checkpoint/format.h"
#include "framework/model/model.h"
#include "framework/recipe/build.h"
#include "framework/recipe/rules.h"
#include "framework/recipe/trained_layers.h"
#include "framework/training/state/trained_names.h"

namespace tessera::recipe {
namespace {

/// How many letters must be changed, removed or added to make `b` of `a`.
std::size_t distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

/// Calls `see` with each pattern that can be read, its text and where it stands; reports the others.
void for_patterns(const Recipe& recipe, options::Report& report,
                  const std::function<void(const training::NamePattern&, const std::string&, const std::string& option,
                                           const options::Origin&)>& see) {
  for (const auto& [name, patterns] : {std::pair("frozen_parameters", &recipe.training.frozen_parameters),
                                       std::pair("trainable_parameters", &recipe.training.trainable_parameters)}) {
    const auto option = std::string("training_config.") + name;
    for_items(recipe, option, *patterns, [&, own = name](const std::string& words, const options::Origin& at) {
      std::optional<training::NamePattern> pattern;
      try {
        pattern.emplace(words);
      } catch (const ConfigError& error) {
        report.problem(at, option, text(own, " has a pattern that cannot be read: ", error.what()),
                       "give a regular expression", freezing_rule);
        return;
      }
      see(*pattern, words, option, at);
    });
  }
}

std::vector<std::string> names_of_model(const Recipe& recipe) {
  std::vector<std::string> names;
  const auto model = recipe.architecture->build(whole_model(recipe, 1));  // the vocabulary's size changes no names
  for (const auto* parameter : model->parameters()) names.push_back(parameter->name);
  return names;
}

/// The option that freezes most, for messages.
std::string blamed(const Recipe& recipe) {
  const auto& run = recipe.training;
  const std::string group = "training_config.";
  if (!run.frozen_parameters.empty()) return group + "frozen_parameters";
  if (recipe.lora.use_lora) return "lora_config.use_lora";
  if (run.freeze_trainable_layers) return group + "freeze_trainable_layers";
  return group + (run.freeze_all_layers ? "freeze_all_layers" : "trainable_parameters");
}

/// Features that change with every step cannot be kept.
void check_feature_cache(const Recipe& recipe, options::Report& report) {
  const std::string option = "vision_config.feature_cache_path";
  if (!recipe.architecture->vision() || !recipe.vision.feature_cache_path) return;
  const auto trained = trained_names(recipe);
  const auto names = names_of_model(recipe);
  const auto first = std::ranges::find_if(
      names, [&](const auto& name) { return name.starts_with("vision_") && trained.trains(name); });
  if (first == names.end()) return;
  tell(recipe, report, freezing_rule, {option, "training_config.frozen_parameters"},
       text("feature_cache_path is given, but ", *first, " is trained: features of images change with it"),
       "leave it out, or freeze tower and merger: frozen_parameters: ['vision_.*'], without adapters there");
}

}  // namespace

void for_items(const Recipe& recipe, const std::string& option, const std::vector<std::string>& items,
               const std::function<void(const std::string& item, const options::Origin& at)>& see) {
  const auto* written = recipe.resolved.at(option);
  for (std::size_t i = 0; i < items.size(); ++i) {
    // The resolved recipe knows where a list was given, and not always where each of its items was.
    const bool alone =
        written == nullptr || i >= written->items.size() || written->items[i].origin.source == options::Origin{}.source;
    see(items[i], written == nullptr ? options::Origin{} : alone ? written->origin : written->items[i].origin);
  }
}

std::string nearest_to(const std::string& pattern, std::vector<std::string> names) {
  constexpr std::size_t most = 3;
  std::string plain = pattern;  // without what has a meaning in patterns only
  std::erase_if(plain, [](char c) { return std::string_view("\\*+?^$()[]|").find(c) != std::string_view::npos; });
  std::vector<std::pair<std::size_t, std::string>> by_distance;
  for (auto& name : names) {
    const auto away = distance(plain, name);
    by_distance.emplace_back(away, std::move(name));
  }
  const auto count = std::min(most, by_distance.size());
  std::partial_sort(by_distance.begin(), by_distance.begin() + static_cast<std::ptrdiff_t>(count), by_distance.end());
  std::string all = count > 1 ? "the nearest names are " : "the only name is ";
  for (std::size_t i = 0; i < count; ++i)
    all += text(i == 0 ? "" : i + 1 == count ? " and " : ", ", by_distance[i].second);
  return all;
}

void note_parameter_groups(const Recipe& recipe, options::Report& report) {
  const auto& groups = recipe.groups;
  if (const auto lowest = recipe.learning_rate.min_lr;
      groups.decoupled_lr && !groups.decoupled_min_lr && lowest > *groups.decoupled_lr)
    if (const auto* given = recipe.resolved.at("optimizer_config.decoupled_lr"))
      report.note(given->origin, text("decoupled_lr is ", *groups.decoupled_lr, ", below min_lr ", lowest,
                                      ", which it reaches in the end: decoupled_min_lr is not given"));
  const auto ends = groups.no_weight_decay_params.value_or(std::vector<std::string>{});
  if (!report.good() || (groups.param_rules.empty() && ends.empty())) return;
  const auto names = names_of_model(recipe);
  const auto note = [&](const std::string& words, const std::string& how, const options::Origin& at) {
    report.note(at, text("'", words, "' ", how, " the name of no parameter; ", nearest_to(words, names)));
  };
  std::vector<std::string> patterns;
  for (const auto& rule : groups.param_rules) patterns.push_back(rule.params);
  for_items(recipe, "optimizer_config.param_rules", patterns, [&](const std::string& pattern, const auto& at) {
    if (std::ranges::none_of(names, [&](const auto& name) { return optim::fits(pattern, name); }))
      note(pattern, "matches", at);
  });
  for_items(recipe, "optimizer_config.no_weight_decay_params", ends, [&](const std::string& end, const auto& at) {
    if (std::ranges::none_of(names, [&](const auto& name) { return name.ends_with(end); })) note(end, "ends", at);
  });
}

void check_freezing(const Recipe& recipe, options::Report& report) {
  if (!report.good()) return;
  check_feature_cache(recipe, report);
  if (!recipe.may_freeze()) return;
  const auto& format = recipe.training.ckpt_format;
  if (format && *format != checkpoint::native_format)
    tell(recipe, report, freezing_rule, {"training_config.ckpt_format", "training_config.frozen_parameters"},
         text("ckpt_format is ", *format, ", which needs optimizer state for every parameter, but some are frozen"),
         "leave ckpt_format out; `tessera checkpoint convert` writes the weights in other formats");
  const auto names = names_of_model(recipe);
  for_patterns(recipe, report, [&](const auto& pattern, const auto& words, const auto& option, const auto& at) {
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return pattern.matches(name); }))
      report.problem(at, option, text("'", words, "' matches the whole name of no parameter"), nearest_to(words, names),
                     freezing_rule);
  });
  check_trained_layers(recipe, names, report);
  if (!report.good()) return;
  const auto trained = trained_names(recipe);
  if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return trained.changes(name); })) {
    tell(recipe, report, freezing_rule, {blamed(recipe)},
         text("all ", names.size(), " parameters are frozen: the run trains nothing"),
         "freeze fewer, or name in trainable_parameters what is trained; `tessera eval` computes losses only");
  }
}

}  // namespace tessera::recipe
