#pragma once

#include "framework/data/dataset.h"

namespace tessera::instructions {

/// Warns if some of the first `epoch` samples of the training data have no label, or a pair has a row without one:
/// their prompts fill seq_length, so nothing is learned from them. Reads at most 1000 samples; those that cannot be
/// read are left out. Does nothing if `warn` is empty.
void warn_of_samples_without_label(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn);

/// Warns in the same way of pairs whose chosen and rejected rows, as the run reads them, are equal.
void warn_of_equal_pairs(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn);

}  // namespace tessera::instructions
