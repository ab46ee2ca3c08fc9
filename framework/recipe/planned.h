#pragma once

#include "framework/options/schema.h"

// Keys of the contract that no code serves yet, group by group; recipe/planned.cpp. A key leaves this list when it
// becomes an option of the part that serves it.

namespace tessera {

struct PlannedTraining {};
void describe(Schema<PlannedTraining>& s);
struct PlannedModel {};
void describe(Schema<PlannedModel>& s);
struct PlannedOptimizer {};
void describe(Schema<PlannedOptimizer>& s);
struct PlannedDataset {};
void describe(Schema<PlannedDataset>& s);
struct PlannedExperts {};  ///< moe_config
void describe(Schema<PlannedExperts>& s);
struct PlannedAdapters {};  ///< lora_config
void describe(Schema<PlannedAdapters>& s);

}  // namespace tessera
