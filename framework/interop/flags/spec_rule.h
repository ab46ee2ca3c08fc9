#pragma once

#include "framework/recipe/registries.h"

namespace tessera::flags {

/// Rule `spec` of docs/rules.md, for Registries::rules: the specification of layers that `model_config.spec` names is
/// known, and the recipe's options describe the same layers. The row of --spec in flags/megatron.yaml, of the recipe's
/// mappings, is the only list of specifications. Reports to `report`; throws ConfigError for a table that lacks the
/// row.
void check_spec(const recipe::Recipe& recipe, options::Report& report);

}  // namespace tessera::flags
