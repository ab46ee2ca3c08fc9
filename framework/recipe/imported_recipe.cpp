#include "framework/recipe/imported_recipe.h"

#include <optional>
#include <utility>

#include "framework/checkpoint/find.h"
#include "framework/options/yaml.h"

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

/// `mappings` with the keys that training_config of `tree` asks to ignore.
options::Mappings ignoring_keys(options::Mappings mappings, const options::Value& tree) {
  std::vector<std::string> keys;
  if (const auto* given = tree.at("training_config.ignore_config_keys"))
    for (const auto& key : given->items) keys.push_back(key.scalar);
  mappings.ignore_keys(keys);
  return mappings;
}

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
void take_checkpoint_arguments(options::Value& tree, const Registries& registries, options::Report& report) {
  const auto* asked = tree.at("training_config.use_checkpoint_args");
  const auto* given = tree.at("training_config.load_checkpoint");
  if (asked == nullptr || asked->scalar != "true" || given == nullptr) return;
  const auto origin = asked->origin;
  const auto folder = given->scalar;
  try {
    const auto described = described_in(folder, registries);
    if (!described)
      return report.note(origin, text("use_checkpoint_args: there is no checkpoint in ", folder,
                                      ", so the options are those of the recipe"));
    const auto table = registries.mappings.table("arguments/from_checkpoint.yaml");
    take_values(tree, *described, table.find("always"), true, origin);
    take_values(tree, *described, table.find("missing"), false, origin);
    const auto* sizes = tree.at("training_config.use_mp_args_from_checkpoint_args");
    const bool takes_sizes = sizes != nullptr && sizes->scalar == "true";
    if (takes_sizes) take_values(tree, *described, table.find("parallel"), true, sizes->origin);
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
  take_checkpoint_arguments(tree, registries, report);
  const auto* given = tree.at("training_config.load_checkpoint");
  if (given == nullptr || given->kind != options::Value::Kind::scalar) return;
  const auto* format = registries.formats.of(given->scalar);
  if (format == nullptr) return;
  try {
    std::vector<std::string> notes;
    auto model = format->model_config(given->scalar, ignoring_keys(registries.mappings, tree), notes);
    if (!model) return;
    for (auto& note : notes) report.note(given->origin, std::move(note));
    set_layers(*model, 1);
    raise_layers(tree, 1);
    report.note(given->origin, text("model_config is that of ", format->model_config_file(given->scalar).string(),
                                    " where the recipe says nothing"));
    model->origin = tree.origin;
    model->lay(std::move(tree));
    tree = *std::move(model);
  } catch (const Error& error) {
    report.problem(given->origin, "training_config.load_checkpoint", error.what());
  }
}

}  // namespace tessera::recipe
