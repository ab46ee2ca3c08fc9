#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera merge`, which writes a model with its adapters merged into its weights as a folder of Transformers.
void add_merge_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
