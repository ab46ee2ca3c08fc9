#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera completion bash|zsh|fish
///
/// Prints a script that completes commands, their options, the keys of a recipe after --set, and the words that a key
/// accepts. It is generated from the commands in `app` and the options of recipes.
///
///     bash   source <(tessera completion bash)
///     zsh    source <(tessera completion zsh), after compinit
///     fish   tessera completion fish | source
void add_completion_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
