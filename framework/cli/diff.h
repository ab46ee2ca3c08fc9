#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Prints how two runs differ. A and B are recipes, scripts of other programs, run folders or checkpoints. Options are
/// compared by their effective value, whether given or default; an option that is null, by its derived default. As for
/// `diff`, the exit code is 0 if nothing differs, 1 if something differs, 2 if A or B cannot be read.
void add_diff_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
