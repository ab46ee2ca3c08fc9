#pragma once

#include <string>
#include <vector>

#include "framework/cli/command.h"
#include "framework/recipe/recipe.h"

namespace tessera::cli {

/// Prints how two runs differ. A and B are recipes, scripts of other programs, run folders or checkpoints. Options are
/// compared by their effective value, whether given or default; an option that is null, by its derived default. Options
/// that nobody gave are left out if they have no effect on either side, or exist on one side only. As for `diff`, the
/// exit code is 0 if nothing differs, 1 if something differs, 2 if A or B cannot be read.
void add_diff_commands(Command& app, CommandContext& context);

/// An option whose effective value differs, with both values and their origins.
struct OptionDifference {
  std::string group, name;  ///< "optimizer_config", "learning_rate"
  std::string one, other;
};
std::vector<OptionDifference> option_differences(const recipe::Recipe& one, const recipe::Recipe& other);

}  // namespace tessera::cli
