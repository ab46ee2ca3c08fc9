#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera options [PATTERN] [--planned | --json-schema | --markdown]
///
/// Every key of a recipe: type, default, limits, meaning, other names, the foreign flags that lead to it. PATTERN is a
/// part of the key, of another name or of a flag; * stands for anything.
void add_options_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
