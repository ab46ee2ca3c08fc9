#pragma once

#include <span>
#include <string>

#include "framework/checkpoint/checkpoint.h"

// Whether the ranges that several ranks save cover every element of every tensor exactly once, without the ranges of
// all ranks in one place: each rank sums a random weight over the elements of its ranges, and the sums are compared.

namespace tessera::checkpoint {

/// The coverage sum of the ranges of one rank, as bytes for a message: 8 bytes, and 8 for each tensor whose first
/// element is among them.
std::string coverage_sum(std::span<const TensorRange> ranges);

/// Whether the ranges with these sums cover each of their tensors completely and without overlap, and agree about its
/// type and shape. True for all that do; false for all others but one in about 2^60. A tensor of which no rank saves
/// anything is not noticed.
bool cover_exactly(std::span<const std::string> sums);

/// A list of the ranges of one rank, as text for must_cover().
std::string list_of_ranges(std::span<const TensorRange> ranges);
/// Throws BugError naming a tensor that the ranges of all ranks together (the lists of list_of_ranges()) do not cover
/// exactly once.
void must_cover(std::span<const std::string> lists);

}  // namespace tessera::checkpoint
