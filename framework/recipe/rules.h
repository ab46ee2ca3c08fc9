#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

// What the files of rules share.

namespace tessera::recipe {

/// Report that `rule` does not hold, pointing at the first of `options` or, when that has its default, at what else the
/// rule looks at. Nothing when one of them is reported already. Rules are known by name: docs/rules.md has them all.
void tell(const Recipe& recipe, options::Report& report, const std::string& rule,
          const std::vector<std::string>& options, const std::string& message, const std::string& advice);

/// The same for what the rules of a part found; its option is a name in `group` ("model_config."), or with its group
/// when that is empty. `others` are the other options that the rule looks at.
void tell(const Recipe& recipe, options::Report& report, const std::string& group, const options::Finding& finding,
          const std::vector<std::string>& others);

/// The rules between parallel_config and the rest that hold for any number of processes; recipe/parallel_rules.cpp.
void check_parallel(const Recipe& recipe, options::Report& report);

/// Why a step, the run or its evaluations have more samples or tokens than are counted; empty when they have not.
std::string uncountable(const Recipe& recipe, std::int64_t ranks);

/// Report a run whose samples are not enough for one step on so many data parallel ranks.
void check_steps(const Recipe& recipe, std::int64_t ranks, options::Report& report);

}  // namespace tessera::recipe
