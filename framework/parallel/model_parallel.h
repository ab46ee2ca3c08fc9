#pragma once

#include <cstdint>

#include "framework/parallel/process_groups.h"

namespace tessera {

/// The groups of a run whose layers are cut over `tensor` processes and whose stages are `pipeline`; the rest of the
/// world are replicas. Neighbouring ranks share layers: with 8 ranks, tensor 2 and pipeline 4 the tensor-parallel
/// groups are {0, 1}, {2, 3}, ... and the stages of the first replica {0, 2, 4, 6}. Collective over the world.
/// `query_groups`: key and value heads of a layer when there are fewer of them than tensor-parallel ranks; 0: there are
/// not.
///
/// Throws ConfigError on every rank when the world does not divide by tensor * pipeline. Whoever needs other axes or
/// another order of ranks makes ProcessGroups of a Mesh. Source: Megatron-LM core, parallel_state.
ProcessGroups initialize_model_parallel(const World& world, int tensor = 1, int pipeline = 1,
                                        std::int64_t query_groups = 0);

/// The two seeds that Megatron-LM core's model_parallel_cuda_manual_seed(seed) sets on a rank: one that the ranks of a
/// tensor-parallel group have in common, for what all of them have whole, and one of each, for what is cut. They are
/// for code that is ported with random numbers of its own. Nothing in Tessera needs them: weights are drawn by name and
/// place in the unsplit tensor and dropout by sample and place, so one seed gives the same numbers on every layout.
struct ModelParallelSeeds {
  std::uint64_t common;  ///< seed
  std::uint64_t own;     ///< seed + 2718 + tensor-parallel rank
};
ModelParallelSeeds model_parallel_seeds(std::uint64_t seed, int tensor_rank);

}  // namespace tessera
