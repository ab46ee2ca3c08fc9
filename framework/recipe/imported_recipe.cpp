#include "framework/recipe/imported_recipe.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "framework/checkpoint/find.h"
#include "framework/options/schema.h"
#include "framework/options/yaml.h"
#include "framework/training/options/training_options.h"

namespace tessera::recipe {
namespace {

/// Adds `by` to the layer of every value.
void raise_layers(options::Value& value, int by) {
  value.origin.layer += by;
  for (auto& item : value.items) raise_layers(item, by);
  for (auto& [name, field] : value.fields) raise_layers(field, by);
}

void set_layers(options::Value& value, int layer) {
  value.origin.layer = layer;
  for (auto& item : value.items) set_layers(item, layer);
  for (auto& [name, field] : value.fields) set_layers(field, layer);
}

/// The options of training_config that say what is taken from a checkpoint, before the recipe is read. Mistakes in them
/// are reported when it is.
struct GivenTraining {
  explicit GivenTraining(const options::Value& tree) : group(tree, "training_config", unheard) {
    training = options::read_own<training::TrainingOptions>(group);
  }
  /// Where an option was given, by whatever name.
  options::Origin origin_of(const char* option) const {
    const auto* value = group.resolved().find(option);
    return value == nullptr ? options::Origin{} : value->origin;
  }
  options::Report unheard;
  options::Group group;
  training::TrainingOptions training;
};

/// The recipe that the newest checkpoint in `folder` has or describes, with the parallel sizes of the run that saved
/// it; nothing if there is no checkpoint.
std::optional<options::Value> described_in(const std::string& folder, const Registries& registries) {
  const auto all = checkpoint::find_any(folder, registries.formats);
  if (all.empty()) return std::nullopt;
  const auto opened = checkpoint::open_checkpoint(all.front(), registries.mappings);
  const auto own = opened->blobs().find(checkpoint::recipe_blob);
  if (own != opened->blobs().end()) return options::parse_yaml(own->second, checkpoint::recipe_blob);
  auto described = opened->recipe();
  for (const auto& [option, size] : opened->parallel_sizes())
    described.set(option, options::Value::of(text(size), described.origin));
  return described;
}

void set_origin(options::Value& value, const options::Origin& origin) {
  value.origin = origin;
  for (auto& item : value.items) set_origin(item, origin);
  for (auto& [name, field] : value.fields) set_origin(field, origin);
}

/// The values of `described` at the paths of `list`; where `over`, also in place of those of `tree`.
void take_values(options::Value& tree, const options::Value& described, const options::Value* list, bool over,
                 const options::Origin& origin) {
  if (list == nullptr) return;
  for (const auto& path : list->items) {
    const auto* value = described.at(path.scalar);
    if (value == nullptr || value->kind == options::Value::Kind::none || value->scalar == "null") continue;
    if (!over && tree.at(path.scalar) != nullptr) continue;
    auto taken = *value;
    set_origin(taken, origin);
    tree.set(path.scalar, std::move(taken));
  }
}

/// With use_checkpoint_args: the options of mappings/arguments/from_checkpoint.yaml.
void take_checkpoint_arguments(const GivenTraining& given, options::Value& tree, const Registries& registries,
                               options::Report& report) {
  if (!given.training.use_checkpoint_args || !given.training.load_checkpoint) return;
  const auto origin = given.origin_of("use_checkpoint_args");
  const auto folder = *given.training.load_checkpoint;
  try {
    const auto described = described_in(folder, registries);
    if (!described)
      return report.note(origin, text("use_checkpoint_args: there is no checkpoint in ", folder,
                                      ", so the options are those of the recipe"));
    const auto table = registries.mappings.table("arguments/from_checkpoint.yaml");
    take_values(tree, *described, table.find("always"), true, origin);
    take_values(tree, *described, table.find("missing"), false, origin);
    const bool takes_sizes = given.training.use_mp_args_from_checkpoint_args;
    if (takes_sizes)
      take_values(tree, *described, table.find("parallel"), true, given.origin_of("use_mp_args_from_checkpoint_args"));
    report.note(origin, text(takes_sizes ? "options of the model and parallel sizes" : "options of the model",
                             " are those of the checkpoint in ", folder, " (use_checkpoint_args)"));
  } catch (const Error& error) {
    report.problem(origin, "training_config.use_checkpoint_args", error.what());
  }
}

}  // namespace

Recipe imported_recipe(options::Value tree, const std::vector<std::string>& sets, const Registries& registries) {
  if (tree.at("training_config.training_iters") == nullptr)
    tree.set("training_config.training_iters", options::Value::of("1", options::Origin{"conversion", 0, "", 1}));
  options::Report report;
  for (const auto& set : sets) {
    const auto equals = set.find('=');
    if (equals == std::string::npos) throw ConfigError(text("--set ", set, ": group.key=value was expected"));
    auto value = options::parse_yaml(set.substr(equals + 1), "--set " + set.substr(0, equals));
    value.origin = {"--set " + set.substr(0, equals), 0, "", 2};
    tree.set(set.substr(0, equals), std::move(value));
  }
  auto recipe = read_recipe(tree, registries, report);
  report.must_be_good();
  return recipe;
}

void lay_on_given_model(options::Value& tree, const Registries& registries, options::Report& report) {
  // All names of load_checkpoint begin so. Most recipes have none, and are not read twice.
  const auto* group = tree.find("training_config");
  const auto may_load = [](const auto& field) { return field.name.starts_with("load"); };
  if (group == nullptr || std::ranges::none_of(group->fields, may_load)) return;
  const GivenTraining given(tree);
  take_checkpoint_arguments(given, tree, registries, report);
  if (!given.training.load_checkpoint) return;
  const std::filesystem::path folder = *given.training.load_checkpoint;
  const auto origin = given.origin_of("load_checkpoint");
  const auto* format = registries.formats.of(folder);
  if (format == nullptr) return;
  try {
    auto mappings = registries.mappings;
    mappings.ignore_keys(given.training.ignore_config_keys);
    std::vector<std::string> notes;
    auto model = format->model_config(folder, mappings, notes);
    if (!model) return;
    for (auto& note : notes) report.note(origin, std::move(note));
    set_layers(*model, 1);
    raise_layers(tree, 1);
    report.note(origin, text("model_config is that of ", format->model_config_file(folder).string(),
                             " where the recipe says nothing"));
    model->origin = tree.origin;
    model->lay(std::move(tree));
    tree = *std::move(model);
  } catch (const Error& error) {
    report.problem(origin, "training_config.load_checkpoint", error.what());
  }
}

}  // namespace tessera::recipe
