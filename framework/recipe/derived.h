#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/recipe/recipe.h"

namespace tessera {

/// What stands in for an option that is null.
struct Derived {
  std::string value;  ///< "11008"; empty where only the run can tell
  std::string how;    ///< "4 x hidden_size"
};

/// For the option at `key`, "model_config.ffn_hidden_size", when it is null in `recipe`. None when it has a value, when
/// null just means that there is none of it, or when the recipe is too wrong to tell.
std::optional<Derived> derived(const Recipe& recipe, const std::string& key);

/// The options that `derived` knows.
std::vector<std::string> derived_options();

}  // namespace tessera
