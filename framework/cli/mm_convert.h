#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera checkpoint mm-convert`, which takes the command lines of MindSpeed-MM's mm-convert.
void add_mm_convert_command(Command& group, CommandContext& context);

}  // namespace tessera::cli
