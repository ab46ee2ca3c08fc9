#pragma once

#include "framework/data/dataset.h"

namespace tessera::gpt {

/// Adds the dataset types of this component: `gpt` and `mock`.
void register_datasets(data::DatasetRegistry& registry);

}  // namespace tessera::gpt
