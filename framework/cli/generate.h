#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera generate FOLDER`, which generates text with a trained model and prints each part as soon as it is
/// generated.
void add_generate_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
