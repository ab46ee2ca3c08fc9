#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera generate FOLDER`: text from a trained model, written as it comes.
void add_generate_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
