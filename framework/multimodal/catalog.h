#pragma once

#include "framework/data/dataset.h"

namespace tessera::multimodal {

/// Adds the dataset type of this component: `mllm`.
void register_datasets(data::DatasetRegistry& registry);

}  // namespace tessera::multimodal
