#pragma once

#include "framework/comm/group_buffer.h"
#include "framework/nn/flat_parameters.h"

namespace tessera {

/// Consecutive parameters of one type whose gradients are reduced together over the data-parallel group.
struct Bucket {
  ElementRange elements;                ///< of the flat arrays (FlatParameters), a multiple of 64
  DType type = DType::float32;          ///< of the parameters as the model reads them
  std::size_t first_run = 0, runs = 0;  ///< indices of its parameters in FlatParameters::runs()
};

/// Divides the parameters into buckets of at least `elements` elements (0: one bucket per type where possible), in the
/// order in which the backward pass completes their gradients: from the last parameter to the first.
std::vector<Bucket> make_buckets(const FlatParameters& layout, std::int64_t elements);

/// A range of elements within one parameter that one data-parallel rank updates.
struct Stretch {
  std::size_t run;        ///< index of the parameter in FlatParameters::runs()
  ElementRange elements;  ///< of the flat arrays
};

/// What rank `rank` of `size` updates with a distributed optimizer: its shard of every bucket, divided at parameters.
/// In ascending order.
std::vector<Stretch> stretches_of(const FlatParameters& layout, std::span<const Bucket> buckets, int rank, int size);
/// Every parameter, whole: what each rank updates without a distributed optimizer.
std::vector<Stretch> all_stretches(const FlatParameters& layout);

}  // namespace tessera
