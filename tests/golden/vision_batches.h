#pragma once

#include "framework/data/dataset.h"

namespace tessera::golden {

/// Adds the dataset "golden_images": batch.safetensors of a case with images and videos. Sample b of step k is number
/// k * batch + b.
void add_vision_batches(data::DatasetRegistry& registry);

}  // namespace tessera::golden
