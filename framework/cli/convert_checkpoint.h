#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera checkpoint convert`, below `group`.
void add_convert_checkpoint_command(Command& group, CommandContext& context);

}  // namespace tessera::cli
