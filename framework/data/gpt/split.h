#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/base/range.h"

namespace tessera::data {

/// Sequences of an indexed dataset, or samples of a file.
using SequenceRange = Range<std::int64_t>;

/// Of a split: fractions of all sequences.
struct SplitBounds {
  double first = 0, last = 0;
};

/// The bounds that weights such as "969, 30, 1" mean: Megatron-LM's `split_matrix`, to the last bit. Throws as
/// cut_split.
std::array<std::optional<SplitBounds>, 3> split_bounds(const std::string& weights);

/// Cuts `sequences` for train, valid and test by weights such as "969, 30, 1" (every run of digits and dots is a
/// weight; left out ones are 0). A weight of 0 has no range; a range may be empty when a weight is small. The
/// arithmetic is Megatron-LM's in float64, so the bounds are too. Throws ConfigError when the text has no or too many
/// weights.
std::array<std::optional<SequenceRange>, 3> cut_split(const std::string& weights, std::int64_t sequences);

}  // namespace tessera::data
