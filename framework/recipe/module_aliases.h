#pragma once

#include "framework/options/mappings.h"
#include "framework/training/lora_plan.h"

namespace tessera::recipe {

/// The names that modules have in other programs, from the tables of weights: where a table makes one of our tensors
/// from several, these are the parts of a fused module. Those of MindSpeed-Core-MS are in modules/core_ms.yaml.
training::ModuleAliases module_aliases(const options::Mappings& mappings);

}  // namespace tessera::recipe
