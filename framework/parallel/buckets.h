#pragma once

#include "framework/comm/group_buffer.h"
#include "framework/nn/flat_parameters.h"

namespace tessera::parallel {

/// Consecutive parameters of one type whose gradients are reduced together over the data-parallel group.
struct Bucket {
  nn::ElementRange elements;        ///< range in the flat arrays (FlatParameters); boundaries at multiples of 64
  DType type = DType::float32;      ///< type in which the model reads the parameters
  std::size_t first_parameter = 0;  ///< index in FlatParameters::ranges()
  std::size_t parameters = 0;       ///< number of parameters
};

/// Divides the parameters into buckets of at least `elements` elements (0: one bucket per type where possible), in the
/// order in which the backward pass completes their gradients: from the last parameter to the first.
std::vector<Bucket> make_buckets(const nn::FlatParameters& layout, std::int64_t elements);

/// The ranges of the flat arrays that rank `rank` of `ranks` updates with a distributed optimizer: its part of every
/// bucket. In ascending order, in whole blocks of 64 elements.
std::vector<nn::ElementRange> shards_of(std::span<const Bucket> buckets, int rank, int ranks);

}  // namespace tessera::parallel
