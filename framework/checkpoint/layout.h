#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/expert_sharers.h"
#include "framework/tensor/weight_part.h"

// How the model is divided over the ranks that save a checkpoint.

namespace tessera::checkpoint {

/// The parallel sizes of a checkpoint.
struct CheckpointLayout {
  std::int64_t tensor = 1, data = 1;  ///< tensor-parallel and data-parallel size
  /// Number of layers, [stage][chunk]; layers are numbered through chunk 0 of all stages, then chunk 1, and so on.
  /// Empty: one stage of one chunk.
  std::vector<std::vector<std::int64_t>> layers = {};
  bool distributed_optimizer = false;  ///< optimizer state is sharded over data-parallel ranks
  std::int64_t vocabulary = 0;         ///< rows of the vocabulary, padding included; 0: unknown
  /// Expert-parallel size, and number of ranks that share each expert (expert-tensor-parallel size; 0: `tensor`).
  std::int64_t expert = 1, expert_tensor = 0;

  std::int64_t stages() const { return layers.empty() ? 1 : static_cast<std::int64_t>(layers.size()); }
  std::int64_t sharers_of_expert() const { return tessera::sharers_of_expert(expert_tensor, tensor); }

  /// Number of the first ranks of a stage, in the order tensor-context-data, that together hold every weight of the
  /// stage. In the functions below, `rank` is one of these.
  std::int64_t ranks() const { return std::max(tensor, sharers_of_expert() * expert); }
  std::int64_t tensor_rank(std::int64_t rank) const { return rank % tensor; }
  std::int64_t expert_rank(std::int64_t rank) const { return rank / sharers_of_expert() % expert; }
  std::int64_t expert_tensor_rank(std::int64_t rank) const { return rank % sharers_of_expert(); }
};

/// One of the ranks of CheckpointLayout::ranks(), and the weights that it holds: those of each chunk, in the order of
/// the model's modules. If the output layer is tied to the embedding and on another stage, it appears there as a word
/// embedding.
struct RankWeights {
  std::int64_t rank = 0;  ///< index in its stage, below CheckpointLayout::ranks()
  std::int64_t stage = 0;
  std::vector<std::vector<WeightPart>> chunks;
};

/// The layer number in a name, 7 for "decoder.layers.7.mlp..."; -1: the tensor belongs to no layer.
std::int64_t layer_of(const std::string& name);

/// Whether the tensor is optimizer state, "optimizer.<state>.<weight>".
bool is_optimizer_state(const std::string& name);
/// The name of the weight that the optimizer state `name` belongs to; for a weight, `name` itself.
std::string weight_of(const std::string& name);

}  // namespace tessera::checkpoint
