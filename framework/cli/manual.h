#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera man
///
/// Prints the manual page in roff, generated from the commands in `app` and the options of recipes.
///
///     tessera man | man -l -
///     tessera man > /usr/local/share/man/man1/tessera.1
void add_manual_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
