#include "framework/cli/diff.h"

#include <algorithm>
#include <iostream>

#include "framework/cli/recipe_arguments.h"
#include "framework/interop/flags/source.h"
#include "framework/log/log.h"
#include "framework/options/same.h"
#include "framework/recipe/describe.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {
namespace {

const log::Logger diff_logger("diff");

constexpr int something_differs = 1;

struct Side {
  std::string name;
  recipe::Recipe recipe;
};

/// Mistakes are reported and do not prevent a comparison, provided that the file could be read completely.
Side read_side(const std::string& given, const std::vector<std::string>& sets, const ForeignArguments& foreign,
               const CommandContext& context) {
  options::Report report;
  RecipeArguments arguments{given, sets, {}};
  if (flags::is_foreign(given, context.mappings())) arguments.foreign = foreign;  // the other side may be a recipe
  Side side{given, read_recipe_or_run(arguments, context, report)};
  if (!report.complete()) report.must_be_good();
  for (const auto& problem : report.problems()) diff_logger.error("mistake: " + problem);
  return side;
}

/// The effective value of an option: its value, or its derived default if it is null.
options::Value effective(const recipe::Recipe& side, const std::string& key) {
  const auto* value = side.resolved.at(key);
  if (value == nullptr) return {};
  const auto instead = side.derived(key);
  return instead && !instead->value.empty() ? options::Value::of(instead->value, value->origin) : *value;
}

std::string words(const recipe::Recipe& side, const std::string& key) {
  const auto* value = side.resolved.at(key);
  if (value == nullptr) return "not an option here";
  if (value->wrong) return text("wrong, see the mistake  (", value->origin, ")");
  const auto shown = text(*value);
  const auto instead = side.derived(key);
  const auto taken = instead && !instead->value.empty() ? text(" = ", instead->value, ", ", instead->how) : "";
  return text(shown.empty() ? "''" : shown, taken, "  (", value->origin.layer == 0 ? "default" : text(value->origin),
              ")");
}

/// The options of both, "fa_config.pre_tokens" for nested ones; those of `a` first.
void keys_of(const options::Value& group, const std::string& path, std::vector<std::string>& keys) {
  for (const auto& [name, value] : group.fields) {
    const auto key = path.empty() ? name : path + "." + name;
    if (value.kind == options::Value::Kind::group)
      keys_of(value, key, keys);
    else if (std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
  }
}

/// Whether nothing is to be told of an option: it does not exist here, or nobody gave it and it has no effect or no
/// counterpart. Two types of a dataset, for example, have many options of their own.
bool is_silent(const recipe::Recipe& side, const std::string& key, const options::Value* value, bool alone) {
  if (value == nullptr) return true;
  if (value->origin.layer != 0 || value->wrong) return false;
  try {
    return alone || !recipe::has_effect(side, key);
  } catch (const ConfigError&) {  // of a recipe with mistakes it is not known
    return false;
  }
}

/// The differences in a group.
void add_differences(const std::string& group, const recipe::Recipe& a, const recipe::Recipe& b,
                     std::vector<OptionDifference>& all) {
  std::vector<std::string> keys;
  for (const auto* side : {&a, &b})
    if (const auto* options = side->resolved.find(group)) keys_of(*options, group, keys);
  for (const auto& key : keys) {
    const auto *one = a.resolved.at(key), *other = b.resolved.at(key);
    const bool both = one != nullptr && other != nullptr && !one->wrong && !other->wrong;
    if (both && options::same(effective(a, key), effective(b, key))) continue;
    if (is_silent(a, key, one, other == nullptr) && is_silent(b, key, other, one == nullptr)) continue;
    all.push_back({group, key.substr(group.size() + 1), words(a, key), words(b, key)});
  }
}

struct DiffArguments {
  std::string a, b;
  std::vector<std::string> sets_a, sets_b;
  ForeignArguments foreign;
};

void diff(const DiffArguments& arguments, CommandContext& context) {
  const auto a = read_side(arguments.a, arguments.sets_a, arguments.foreign, context),
             b = read_side(arguments.b, arguments.sets_b, arguments.foreign, context);
  const auto all = option_differences(a.recipe, b.recipe);
  if (all.empty()) return;
  std::cout << "- " << a.name << "\n+ " << b.name << "\n";
  std::string group;
  for (const auto& one : all) {
    if (one.group != group) std::cout << one.group << "\n";
    group = one.group;
    std::cout << "  " << one.name << "\n    - " << one.one << "\n    + " << one.other << "\n";
  }
  context.exit_code = something_differs;
}

}  // namespace

std::vector<OptionDifference> option_differences(const recipe::Recipe& one, const recipe::Recipe& other) {
  std::vector<OptionDifference> all;
  for (const auto& [group, facts] : one.facts) add_differences(group, one, other, all);
  return all;
}

void add_diff_commands(Command& app, CommandContext& context) {
  auto* command = app.add_subcommand("diff", "Compare two recipes or runs; exit code 1 if they differ");
  const auto arguments = std::make_shared<DiffArguments>();
  const char* what = "A recipe, another program's script, a run folder or a checkpoint";
  command->add_option("A", arguments->a, what)->required()->type_name("");
  command->add_option("B", arguments->b, what)->required()->type_name("");
  command->add_option("--set-a", arguments->sets_a, "Set one option of A; may be repeated")
      ->type_name("group.key=value")
      ->one_value_each();
  command->add_option("--set-b", arguments->sets_b, "Set one option of B; may be repeated")
      ->type_name("group.key=value")
      ->one_value_each();
  add_foreign_arguments(*command, arguments->foreign);
  command->callback([arguments, &context] { diff(*arguments, context); });
}

}  // namespace tessera::cli
