#pragma once

#include <cstdint>
#include <string>

#include "framework/cli/command.h"

namespace tessera::cli {

/// Adds `tessera checkpoint list` to `group`, the command `tessera checkpoint`.
void add_checkpoint_list_command(Command& group, CommandContext& context);

/// "1.43 MB"
std::string size_text(std::uint64_t bytes);

}  // namespace tessera::cli
