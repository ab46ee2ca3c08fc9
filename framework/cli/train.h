#pragma once

#include "framework/cli/recipe_arguments.h"
#include "framework/comm/world.h"
#include "framework/training/loop/trainer.h"

namespace tessera::cli {

/// Trains a recipe on the ranks of `world`: what `tessera train` does between the start and the end of its processes.
/// Collective. Throws as that command does.
training::RunEnd train_on(const comm::World& world, const RecipeArguments& arguments, const CommandContext& context,
                          const training::StopSignal& stop);

/// Adds `tessera train RECIPE`, which trains, and resumes from the newest checkpoint of the run folder if there is one.
void add_train_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
