#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera diff A B [--set-a group.key=value ...] [--set-b group.key=value ...]
///
/// What two runs do differently: A and B are recipes, scripts of other programs, run folders or checkpoints. Every
/// option counts with its value, whoever said it; one that is null counts with what is taken instead. As `diff` does,
/// the exit code is 0 when nothing differs and 1 when something does; 2 when one of them cannot be read.
void add_diff_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
