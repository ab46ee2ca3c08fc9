#pragma once

#include "framework/recipe/registries.h"

namespace tessera::flags {

/// Rule `spec` of docs/rules.md, for Registries::rules: checks that the layer specification that `model_config.spec`
/// names is known, and that the recipe's options describe the same layers. The row of --spec in flags/megatron.yaml of
/// the recipe's mappings is the only list of specifications. Violations go to `report`; throws ConfigError if the table
/// lacks the row.
void check_spec(const recipe::Recipe& recipe, options::Report& report);

}  // namespace tessera::flags
