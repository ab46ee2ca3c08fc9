#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera man [PAGE]
/// tessera man --output-dir DIR
///
/// Prints a manual page in roff, generated from the commands in `app` and the options of recipes: of the program, of a
/// command with its subcommands, or of recipes ("recipe", section 5). With --output-dir it writes all of them, one file
/// each. The pages have no date: the same program writes the same bytes. Must be added after all other commands.
///
///     tessera man train | man -l -
///     tessera man --output-dir /usr/local/share/man/man1
void add_manual_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
