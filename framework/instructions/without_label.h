#pragma once

#include "framework/data/dataset.h"

namespace tessera::instructions {

/// Throws ConfigError if none of the first `epoch` samples of the training data has a label, so that nothing could be
/// learned. Reads samples up to the first with a label; does nothing if there is none among the first 1000 of more.
void refuse_if_without_labels(const data::Dataset& data, std::int64_t epoch);

/// Warns if some of the first `epoch` samples of the training data have no label, or a pair has a row without one:
/// their prompts fill seq_length, so nothing is learned from them; and if some cannot be used, with what is wrong with
/// the first of these. Reads at most 1000 samples. Does nothing if `warn` is empty.
void warn_of_samples_without_label(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn);

/// Warns that `cut` of `all` training samples or pairs, the longest of `longest` tokens, exceed seq_length, if any do.
void warn_of_cut_samples(std::int64_t cut, std::int64_t all, std::int64_t longest, const data::Dataset& data,
                         const data::TellLine& warn);

/// Warns in the same way of pairs whose chosen and rejected rows, as the run reads them, are equal.
void warn_of_equal_pairs(const data::Dataset& data, std::int64_t epoch, const data::TellLine& warn);

}  // namespace tessera::instructions
