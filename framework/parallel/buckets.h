#pragma once

#include "framework/comm/group_buffer.h"
#include "framework/nn/flat_parameters.h"

namespace tessera {

/// Consecutive parameters of one type, whose gradients are summed together over the data-parallel group.
struct Bucket {
  ElementRange elements;        ///< of the flat arrays, in whole runs of 64
  DType type = DType::float32;  ///< of the parameters as the model reads them
  std::size_t first_run = 0, runs = 0;
};

/// The parameters in buckets of about `elements` (0: as few as there can be), in the order in which the backward pass
/// completes them: from the last parameter to the first.
std::vector<Bucket> make_buckets(const FlatParameters& layout, std::int64_t elements);

/// Elements of one run that one member of a data-parallel group updates.
struct Stretch {
  std::size_t run;
  ElementRange elements;  ///< of the flat arrays
};

/// What member `rank` of `size` updates when the optimizer's state is sharded: its share of every bucket, cut at runs.
std::vector<Stretch> stretches_of(const FlatParameters& layout, std::span<const Bucket> buckets, int rank, int size);
/// Every run, whole: what a process by itself updates.
std::vector<Stretch> all_stretches(const FlatParameters& layout);

}  // namespace tessera
