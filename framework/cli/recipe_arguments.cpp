#include "framework/cli/recipe_arguments.h"

#include <ostream>

#include "framework/options/yaml.h"

namespace tessera {
namespace {

/// "NAME=value" in two.
std::pair<std::string, std::string> pair_of(const std::string& words, const char* option) {
  const auto equals = words.find('=');
  if (equals == 0 || equals == std::string::npos)
    throw ConfigError(text(option, " ", words, ": a name, = and a value were expected"));
  return {words.substr(0, equals), words.substr(equals + 1)};
}

}  // namespace

void add_set_arguments(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set one option, over what the recipe says; may be repeated")
      ->type_name("group.key=value")
      ->allow_extra_args(false);
}

void add_foreign_arguments(CLI::App& command, ForeignArguments& arguments) {
  command
      .add_option("--from", arguments.from, "Whose flags a script has: megatron@core_v0.12.1, ...; left out: guessed")
      ->type_name("PROGRAM");
  command.add_option("--arg", arguments.positional, "An argument that the script is called with; may be repeated")
      ->type_name("N=value")
      ->allow_extra_args(false);
  command.add_option("--env", arguments.environment, "A variable that the script finds; may be repeated")
      ->type_name("NAME=value")
      ->allow_extra_args(false);
}

SourceOptions source_options(const ForeignArguments& arguments) {
  SourceOptions options{arguments.from, {}};
  for (const auto& words : arguments.positional) {
    const auto [number, value] = pair_of(words, "--arg");
    if (number.find_first_not_of("0123456789") != std::string::npos || number.size() > 4 || std::stoi(number) == 0)
      throw ConfigError(text("--arg ", words, ": arguments have numbers from 1"));
    options.inputs.arguments[std::stoi(number)] = value;
  }
  for (const auto& words : arguments.environment) options.inputs.environment.insert(pair_of(words, "--env"));
  return options;
}

void add_recipe_arguments(CLI::App& command, RecipeArguments& arguments) {
  command.add_option("RECIPE", arguments.file, "The recipe, a .yaml file, or another program's launch script")
      ->required()
      ->type_name("");
  add_set_arguments(command, arguments.sets);
  add_foreign_arguments(command, arguments.foreign);
}

Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, Report& report) {
  if (!is_foreign(arguments.file, context.mappings()))
    return read_recipe(arguments.file, arguments.sets, context.shelves, report);
  auto source = read_source(arguments.file, source_options(arguments.foreign), all_facts(context.shelves),
                            context.mappings(), report);
  lay_sets(source.tree, arguments.sets, report);
  expand_unknowns(source.tree, report);
  return read_recipe(source.tree, context.shelves, report);
}

Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, std::ostream& notes) {
  Report report;
  auto recipe = read_recipe(arguments, context, report);
  for (const auto& note : report.notes()) notes << "note: " << note << "\n";
  report.must_be_good();
  return recipe;
}

}  // namespace tessera
