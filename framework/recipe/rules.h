#pragma once

#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

// Shared by the source files with rules. Internal to this component.

namespace tessera::recipe {

/// Reports that `rule` does not hold, at the origin of the first of `options` or, if that has its default, of another
/// of them. Does nothing if a problem with one of them was reported. docs/rules.md lists all rules by name.
void tell(const Recipe& recipe, options::Report& report, const std::string& rule,
          const std::vector<std::string>& options, const std::string& message, const std::string& advice);

/// Reports a `finding` of a rule of one struct. The finding's option is a name in `group` ("model_config."), or a full
/// name if `group` is empty. `others` are the other options that the rule reads.
void tell(const Recipe& recipe, options::Report& report, const std::string& group, const options::Finding& finding,
          const std::vector<std::string>& others);

/// Checks the rules between parallel_config and other groups that do not depend on the number of ranks
/// (recipe/parallel_rules.cpp).
void check_parallel(const Recipe& recipe, options::Report& report);

/// Checks the rules of training_config.stage: the data, the objective and the reference model (recipe/stage_rules.cpp).
void check_stage(const Recipe& recipe, options::Report& report);
/// Checks that a run trains a score head with stage rm only. A recipe of a model that is converted has no stage.
void check_head(const Recipe& recipe, options::Report& report);

/// Why a step, the run or its evaluations have more samples or tokens than 64-bit counts allow; empty if they do not.
std::string uncountable(const Recipe& recipe, std::int64_t ranks);

/// Throws ConfigError if a rule of the learning rate does not hold in a run of `steps` steps on `ranks` data-parallel
/// ranks: of a run in epochs, whose length only the data tell.
void require_learning_rate(const Recipe& recipe, std::int64_t steps, std::int64_t ranks);

/// Reports a run that has fewer samples than one step on `ranks` data-parallel ranks.
void check_steps(const Recipe& recipe, std::int64_t ranks, options::Report& report);

}  // namespace tessera::recipe
