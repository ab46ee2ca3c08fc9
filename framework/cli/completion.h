#pragma once

#include "framework/cli/command.h"

namespace tessera {

/// tessera completion bash: a script for `source <(tessera completion bash)`, made from the commands in `app`.
void add_completion_commands(CLI::App& app, CommandContext& context);

}  // namespace tessera
