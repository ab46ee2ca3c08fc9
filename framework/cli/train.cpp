#include "framework/cli/train.h"

#include <filesystem>
#include <iostream>
#include <sstream>

#include "framework/cli/recipe_arguments.h"
#include "framework/comm/launch_link.h"
#include "framework/comm/together.h"
#include "framework/recipe/build.h"
#include "framework/training/trainer.h"

namespace tessera {
namespace {

void train_recipe(const RecipeArguments& arguments, CommandContext& context) {
  const StopSignal stop;  // before anything takes long, so that the first signal never loses work
  const World world;
  const bool first = world.rank() == 0;
  std::ostringstream unheard;
  Recipe recipe;
  ProcessGroups processes;
  Parts parts;
  together(world.all(), "reading the recipe",
           [&] { recipe = read_recipe(arguments, context, first ? std::cerr : unheard); });
  together(world.all(), "arranging the processes", [&] { processes = arrange(recipe, world); });
  together(world.all(), "building the run", [&] { parts = build(recipe, processes); });
  const auto end = train(std::move(parts), stop);
  if (first) std::cout << end.last_line << std::endl;
  context.exit_code = end.exit_code;
  if (end.exit_code == 0) LaunchLink().done();
}

/// Where the run would write; the launcher asks so that logs go there. Nothing is started.
void print_output_dir(const RecipeArguments& arguments, const CommandContext& context) {
  const auto recipe = read_recipe(arguments, context, std::cerr);
  std::cout << std::filesystem::absolute(recipe.training.output_dir).lexically_normal().string() << std::endl;
}

}  // namespace

void add_train_commands(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("train", "Train from a recipe; the same command goes on where the last one stopped");
  const auto arguments = std::make_shared<RecipeArguments>();
  add_recipe_arguments(*command, *arguments);
  const auto only_where = std::make_shared<bool>(false);
  command->add_flag("--print-output-dir", *only_where, "Read the recipe, print the run folder and end: for launchers");
  command->callback([arguments, only_where, &context] {
    if (*only_where) {
      print_output_dir(*arguments, context);
    } else {
      train_recipe(*arguments, context);
    }
  });
}

}  // namespace tessera
