#pragma once

#include <nlohmann/json_fwd.hpp>

#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// What Megatron-LM's validation derives of its arguments and changes in them: `arguments` comes as parsed and goes as
/// validated. `recipe` fits `world` processes. Each rule is one entry of a list, by its name in docs/rules.md.
void validate_arguments(const recipe::Recipe& recipe, std::int64_t world, nlohmann::json& arguments);

}  // namespace tessera::flags
