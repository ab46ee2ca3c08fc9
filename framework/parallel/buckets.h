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

/// A range of elements within one parameter that one data-parallel rank updates.
struct ParameterShard {
  std::size_t parameter;      ///< index in FlatParameters::ranges()
  nn::ElementRange elements;  ///< range in the flat arrays
};

/// The shards that rank `rank` of `ranks` updates with a distributed optimizer: its part of every bucket, split at
/// parameter boundaries. In ascending order, in whole blocks of 64 elements.
std::vector<ParameterShard> shards_of(const nn::FlatParameters& layout, std::span<const Bucket> buckets, int rank,
                                      int ranks);
/// One shard for each whole parameter: what each rank updates without a distributed optimizer.
std::vector<ParameterShard> whole_parameters(const nn::FlatParameters& layout);

}  // namespace tessera::parallel
