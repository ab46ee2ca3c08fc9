#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera check RECIPE [--set group.key=value ...] [--json]
///
/// Reads everything and reports every mistake at once, `file:line: what came, what was expected; what to do`, on stderr
/// with exit code 2; with --json as [{"file","line","key","message","suggestion"}] on stdout. Without mistakes: what
/// follows from the recipe, its parameters by part, the memory of its state, and the keys that it gives without effect.
void add_check_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
