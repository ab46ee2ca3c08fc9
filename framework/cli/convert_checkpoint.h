#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera checkpoint convert` to `group`, the command `tessera checkpoint`.
void add_convert_checkpoint_command(Command& group, CommandContext& context);

}  // namespace tessera::cli
