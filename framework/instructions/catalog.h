#pragma once

#include "framework/data/dataset.h"

namespace tessera::instructions {

/// Adds the dataset types of this component: `sft` and `instruction`.
void register_datasets(data::DatasetRegistry& registry);

}  // namespace tessera::instructions
