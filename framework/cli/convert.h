#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera convert`, which converts scripts, flags and recipes of other programs to Tessera's recipes, and back.
void add_convert_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
