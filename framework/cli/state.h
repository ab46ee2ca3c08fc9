#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera state`: probe, finish, save, clean. They act on the training state that the jobs of tsrun keep in this
/// host's memory, also after all processes of a job were killed. Exit code 2 for a job that does not exist or still
/// runs; finish and save return the exit code of tsrun.
void add_state_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
