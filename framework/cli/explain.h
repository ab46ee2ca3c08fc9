#pragma once

#include "framework/cli/command.h"

namespace tessera::cli {

/// tessera explain KEY [RECIPE] [--set group.key=value ...]
///
/// One option: what it does, its type, limits and default, who reads it, its other names, the foreign flags that lead
/// to it in every table of mappings/flags. With RECIPE: its value there and where that came from; where it is null,
/// what is taken instead; and whether it has an effect. KEY is group.key, one of its other names, or the key alone
/// where no other group has it.
void add_explain_commands(Command& app, CommandContext& context);

}  // namespace tessera::cli
