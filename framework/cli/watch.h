#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera watch`: runs live in a terminal, as lines of text, or as a page for a browser on this host.
void add_watch_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
