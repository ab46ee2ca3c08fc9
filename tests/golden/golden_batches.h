#pragma once

#include "framework/data/dataset.h"

namespace tessera::golden {

/// Adds two datasets. "golden": batch.safetensors of a case (tokens, labels, loss_mask, position_ids, [steps, batch,
/// length]); sample b of step k is number k * batch + b. "golden_pairs": pairs.safetensors (input_ids, attention_mask,
/// completion_mask, [steps, 2 pairs, length], the chosen rows first); pair p of step k is number k * pairs + p.
void add_golden_datasets(data::DatasetRegistry& registry);

}  // namespace tessera::golden
