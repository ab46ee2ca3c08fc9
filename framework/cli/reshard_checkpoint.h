#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera checkpoint reshard
void add_reshard_command(Command& group, CommandContext& context);

}  // namespace tessera::cli
