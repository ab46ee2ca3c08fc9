#pragma once

#include <cstdint>

#include "framework/parallel/process_groups.h"

namespace tessera::parallel {

/// Creates the groups of a run with tensor-parallel size `tensor` and pipeline-parallel size `pipeline`; the remaining
/// factor of the world size is the data-parallel size. Collective over the world. For example, with 8 ranks, tensor 2
/// and pipeline 4 the tensor-parallel groups are {0, 1}, {2, 3}, ... and the pipeline is {0, 2, 4, 6}.
///
/// `query_groups`: key/value heads per layer, if there are fewer than tensor-parallel ranks; otherwise 0.
///
/// Throws ConfigError on every rank if a size is below 1 or the world size is not a multiple of tensor * pipeline. For
/// other axes or another order of ranks construct ProcessGroups from a Mesh. Source: Megatron-LM core, parallel_state.
ProcessGroups initialize_model_parallel(const comm::World& world, int tensor = 1, int pipeline = 1,
                                        std::int64_t query_groups = 0);

/// The two seeds that Megatron-LM core's model_parallel_cuda_manual_seed(seed) sets on a rank, for ported code that has
/// its own random numbers. Tessera itself uses neither: weights are keyed by name and index in the unsharded tensor,
/// dropout by sample and element, so one seed gives the same numbers for every layout.
struct ModelParallelSeeds {
  std::uint64_t common;  ///< seed; equal on all ranks of a tensor-parallel group, for replicated values
  std::uint64_t own;     ///< seed + 2718 + tensor-parallel rank; for sharded values
};
/// The seeds of rank `tensor_rank` of a tensor-parallel group.
ModelParallelSeeds model_parallel_seeds(std::uint64_t seed, int tensor_rank);

}  // namespace tessera::parallel
