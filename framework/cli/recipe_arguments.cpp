#include "framework/cli/recipe_arguments.h"

#include <ostream>

namespace tessera {

void add_set_arguments(CLI::App& command, std::vector<std::string>& sets) {
  command.add_option("--set", sets, "Set one option, over what the recipe says; may be repeated")
      ->type_name("group.key=value")
      ->allow_extra_args(false);
}

void add_recipe_arguments(CLI::App& command, RecipeArguments& arguments) {
  command.add_option("RECIPE", arguments.file, "The recipe, a .yaml file")->required()->type_name("");
  add_set_arguments(command, arguments.sets);
}

Recipe read_recipe(const RecipeArguments& arguments, const CommandContext& context, std::ostream& notes) {
  Report report;
  auto recipe = read_recipe(arguments.file, arguments.sets, context.shelves, report);
  for (const auto& note : report.notes()) notes << "note: " << note << "\n";
  report.must_be_good();
  return recipe;
}

}  // namespace tessera
