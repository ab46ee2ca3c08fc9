#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera train RECIPE`, which trains, and resumes from the newest checkpoint of the run folder if there is one.
void add_train_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
