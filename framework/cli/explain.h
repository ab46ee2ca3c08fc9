#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Prints one option: what it does, its type, limits and default, the struct that reads it, its aliases, and the flags
/// of other programs that set it, from every table of mappings/flags. With RECIPE, also its value there and the origin
/// of that value; its derived default if it is null; and whether it has an effect. KEY is group.key, an alias, or the
/// key alone if only one group has it.
void add_explain_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
