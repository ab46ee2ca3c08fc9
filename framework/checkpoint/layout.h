#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/tensor/weight_part.h"

// How the ranks that save a checkpoint divide a model.

namespace tessera::checkpoint {

/// The ranks of a checkpoint, in numbers.
struct CheckpointLayout {
  std::int64_t tensor = 1, data = 1;
  /// Number of layers, [stage][chunk]; layers are numbered through chunk 0 of all stages, then chunk 1, and so on.
  /// Empty: one stage of one chunk.
  std::vector<std::vector<std::int64_t>> layers = {};
  bool distributed_optimizer = false;  ///< data-parallel ranks share the optimizer state
  std::int64_t vocabulary = 0;         ///< rows of the vocabulary, padding included; 0: not known
  /// Expert parallelism: how many groups of ranks divide the experts of a layer, and how many ranks of such a group
  /// share each expert (0: `tensor`).
  std::int64_t expert = 1, expert_tensor = 0;

  std::int64_t stages() const { return layers.empty() ? 1 : static_cast<std::int64_t>(layers.size()); }
  std::int64_t sharers_of_expert() const { return expert_tensor > 0 ? expert_tensor : tensor; }

  /// The first ranks of a stage, in the order tensor-context-data, that together have every weight of the stage. Below,
  /// `rank` is one of these.
  std::int64_t ranks() const { return std::max(tensor, sharers_of_expert() * expert); }
  std::int64_t tensor_rank(std::int64_t rank) const { return rank % tensor; }
  std::int64_t expert_rank(std::int64_t rank) const { return rank / sharers_of_expert() % expert; }
  std::int64_t expert_tensor_rank(std::int64_t rank) const { return rank % sharers_of_expert(); }
};

/// One of those ranks, and the weights that it has: those of each chunk, in the order of the model's modules. A tied
/// output layer on another stage than the embedding is a word embedding there.
struct RankWeights {
  std::int64_t rank = 0;  ///< in its stage, below CheckpointLayout::ranks()
  std::int64_t stage = 0;
  std::vector<std::vector<WeightPart>> chunks;
};

/// The layer in "decoder.layers.7.mlp..."; -1: in none.
std::int64_t layer_of(const std::string& name);

/// Whether the tensor is optimizer state, "optimizer.<state>.<weight>".
bool is_optimizer_state(const std::string& name);
/// The weight that optimizer state belongs to; a weight's own name.
std::string weight_of(const std::string& name);

}  // namespace tessera::checkpoint
