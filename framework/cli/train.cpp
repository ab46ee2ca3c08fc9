#include "framework/cli/train.h"

#include <iostream>

#include "framework/cli/recipe_arguments.h"
#include "framework/recipe/build.h"
#include "framework/training/trainer.h"

namespace tessera {
namespace {

void train_recipe(const RecipeArguments& arguments, CommandContext& context) {
  const StopSignal stop;  // before anything takes long, so that the first signal never loses work
  const auto end = train(build(read_recipe(arguments, context, std::cerr)), stop);
  std::cout << end.last_line << std::endl;
  context.exit_code = end.exit_code;
}

}  // namespace

void add_train_commands(CLI::App& app, CommandContext& context) {
  auto* command =
      app.add_subcommand("train", "Train from a recipe; the same command goes on where the last one stopped");
  const auto arguments = std::make_shared<RecipeArguments>();
  add_recipe_arguments(*command, *arguments);
  command->callback([arguments, &context] { train_recipe(*arguments, context); });
}

}  // namespace tessera
