#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

// What the files of rules share.

namespace tessera {

/// Report that `rule` does not hold, pointing at the first of `options` or, when that has its default, at what else the
/// rule looks at. Nothing when one of them is reported already. Rules are known by name: docs/rules.md has them all.
void tell(const Recipe& recipe, Report& report, const std::string& rule, const std::vector<std::string>& options,
          const std::string& message, const std::string& advice);

/// The rules between parallel_config and the rest that hold for any number of processes; recipe/parallel_rules.cpp.
void check_parallel(const Recipe& recipe, Report& report);

}  // namespace tessera
