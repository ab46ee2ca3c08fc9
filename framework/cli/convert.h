#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera convert`: scripts, flags and recipes of other programs into ours, and back.
void add_convert_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
