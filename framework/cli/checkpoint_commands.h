#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera checkpoint` with its subcommands, such as inspect and verify. FOLDER is a checkpoint, or a run folder
/// or folder of checkpoints, of which the newest is used. A damaged checkpoint ends the command with exit code 24 and a
/// message on stderr; a folder without checkpoints, with 2.
void add_checkpoint_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
