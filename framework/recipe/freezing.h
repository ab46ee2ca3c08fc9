#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// The name of the rule that each problem of this file has.
inline constexpr const char* freezing_rule = "frozen parameters";

/// Calls `see` with each of `items`, the value of the list `option`, and where it was given.
void for_items(const Recipe& recipe, const std::string& option, const std::vector<std::string>& items,
               const std::function<void(const std::string& item, const options::Origin& at)>& see);

/// "the nearest names are a, b and c": those of `names` that differ least from the name or regular expression
/// `pattern`.
std::string nearest_to(const std::string& pattern, std::vector<std::string> names);

/// Notes a decoupled learning rate that rises; and the patterns of optimizer_config.param_rules and the ends of names
/// in no_weight_decay_params that match no parameter: a recipe for several models may have some.
void note_parameter_groups(const Recipe& recipe, options::Report& report);

/// Reports what is wrong with the options of training_config that freeze parameters: patterns that cannot be read or
/// match no parameter, modules that the model does not have, and a run that trains nothing. Constructs the model, so
/// `recipe` must be right otherwise: does nothing if `report` has a problem.
void check_freezing(const Recipe& recipe, options::Report& report);

}  // namespace tessera::recipe
