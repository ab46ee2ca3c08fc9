#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera eval FOLDER`, which prints loss, perplexity and bits per byte of a text or of preprocessed data.
void add_eval_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
