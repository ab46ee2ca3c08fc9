#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera train RECIPE`: trains, continuing from the run folder's newest checkpoint when there is one.
void add_train_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
