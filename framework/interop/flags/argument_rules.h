#pragma once

#include "framework/base/json.h"
#include "framework/recipe/recipe.h"

namespace tessera::flags {

/// Applies Megatron-LM's validation (validate_args) to `arguments`, which are as parsed on input and as validated on
/// return. `recipe` fits `world` ranks. Each rule is one entry of a list, with its name in docs/rules.md.
void validate_arguments(const recipe::Recipe& recipe, std::int64_t world, Json& arguments);

}  // namespace tessera::flags
