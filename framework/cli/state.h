#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// `tessera state`: probe, finish, save, clean. The state in this host's memory that tsrun's jobs keep there, also
/// after all their processes were killed. Exit code 2 for a job that does not exist or still runs; of finish and save
/// that of tsrun.
void add_state_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
