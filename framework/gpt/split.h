#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "framework/base/range.h"
#include "framework/options/report.h"

namespace tessera::gpt {

/// Sequences of an indexed dataset, or samples of a file.
using SequenceRange = Range<std::int64_t>;

/// Bounds of a split, as fractions of all sequences.
struct SplitBounds {
  double first = 0, last = 0;
};

/// The bounds given by weights such as "969, 30, 1": Megatron-LM's `split_matrix`, bit for bit. Throws as cut_split
/// does.
std::array<std::optional<SplitBounds>, 3> split_bounds(const std::string& weights);

/// The error for the value of the option `split` that cut_split would throw; nothing if there is none.
std::optional<options::Finding> broken_split(const std::optional<std::string>& weights);

/// Divides `sequences` into train, valid and test by weights such as "969, 30, 1": each sequence of digits and dots is
/// a weight; between them may be blanks, commas, slashes, colons and semicolons, around them brackets; missing weights
/// are 0. A split of weight 0 has no range; the range of a small weight may be empty. The arithmetic is Megatron-LM's,
/// in float64, so the bounds are equal. Throws ConfigError if the text has no weights, too many, or anything else.
std::array<std::optional<SequenceRange>, 3> cut_split(const std::string& weights, std::int64_t sequences);

}  // namespace tessera::gpt
