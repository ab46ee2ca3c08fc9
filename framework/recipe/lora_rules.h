#pragma once

#include "framework/recipe/recipe.h"

namespace tessera::recipe {

/// Reports what is wrong with the targets of lora_config: a name that selects no layer, modules_to_save that name
/// nothing or one end of a tied table. Constructs the model, so `recipe` must be right otherwise: does nothing if
/// `report` has a problem.
void check_lora(const Recipe& recipe, options::Report& report);

}  // namespace tessera::recipe
