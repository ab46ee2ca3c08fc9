#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Reads the recipe and reports all mistakes at once, `file:line: what is wrong; what to do`, on stderr with exit code
/// 2; with --json as [{"file","line","key","message","suggestion"}] on stdout. Without mistakes it prints figures of
/// the recipe: parameters by part, memory of the training state, and the given keys that have no effect.
void add_check_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
