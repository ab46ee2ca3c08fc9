#pragma once

#include <cstdint>

namespace tessera::nn {

/// The position of a rank among the ranks that share the experts of a layer. Plain numbers, like TensorRank.
///
/// Expert parallelism: of E experts, rank r of `ranks` has the experts [r * E / ranks, (r + 1) * E / ranks). Expert
/// tensor parallelism: each expert is sharded over `tensor_ranks` ranks, as a dense network is over tensor-parallel
/// ranks. Source: Megatron-LM core, expert_model_parallel and expert_tensor_parallel.
struct ExpertRank {
  int rank = 0, ranks = 1;
  int tensor_rank = 0, tensor_ranks = 1;

  bool whole() const { return ranks == 1 && tensor_ranks == 1; }
  /// Index of this rank's first expert, and its number of experts, in a layer with `experts` experts, a multiple of
  /// `ranks`.
  std::int64_t first(std::int64_t experts) const { return experts / ranks * rank; }
  std::int64_t count(std::int64_t experts) const { return experts / ranks; }
};

}  // namespace tessera::nn
