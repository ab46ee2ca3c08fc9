#pragma once

#include "framework/cli/command.h"

namespace tessera {

/// tessera checkpoint reshard
void add_reshard_command(Command& group, CommandContext& context);

}  // namespace tessera
