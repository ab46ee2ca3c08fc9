#pragma once

#include "framework/training/state/lora_plan.h"

namespace tessera::recipe {

struct Recipe;

/// The names that modules of the recipe's model have in other programs, from the tables of weights: where a table makes
/// one of our tensors from several, these are the parts of a fused module. Those of MindSpeed-Core-MS are in
/// modules/core_ms.yaml.
///
/// The model's own table (ModuleAlias::own) is that of the checkpoint that load_checkpoint names, if its format has
/// one; else of the families of Transformers whose tensors the model has, that with most of them. Constructs the model
/// when it is first asked.
training::ModuleAliases module_aliases(const Recipe& recipe);

/// The modules of the recipe's model. Constructs it when it is asked.
training::ModuleList module_list(const Recipe& recipe);

}  // namespace tessera::recipe
