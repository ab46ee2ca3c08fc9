#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera checkpoint reshard` to `group`, the command `tessera checkpoint`.
void add_reshard_command(Command& group, CommandContext& context);

}  // namespace tessera::cli
