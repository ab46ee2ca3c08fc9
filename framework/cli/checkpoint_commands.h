#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera checkpoint`: inspect, verify. FOLDER is a checkpoint, or a run folder or folder of checkpoints, whose
/// newest is taken. A damaged one ends with exit code 24 and the message on stderr; a folder that holds none with 2.
void add_checkpoint_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
