#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Prints every key of a recipe: type, default, limits, meaning, aliases, and the flags of other programs that set it.
/// PATTERN is a part of the key, of an alias or of a flag; * matches any text.
void add_options_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
