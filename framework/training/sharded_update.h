#pragma once

#include <span>
#include <vector>

#include "framework/training/state_memory.h"

namespace tessera::training {

/// One step of an optimizer on this rank's shards, divided into pieces for the threads.
class ShardedUpdate {
 public:
  /// None is owned; all outlive this. Throws ConfigError if the optimizer needs whole matrices that ranks share.
  ShardedUpdate(const StateLayout& layout, const optim::Optimizer& optimizer, StateMemory& memory);

  /// Updates weights and optimizer state from the gradients, then the 16-bit weights of the same shards. `groups` are the
  /// scalars of each group of parameters, which the optimizer prepares in place; `group_of[i]` is the group of parameter
  /// i of the layout; empty: all are in the first.
  void step(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);

 private:
  /// What one thread updates at a time, or a matrix that the optimizer needs as a whole.
  struct Piece {
    std::size_t shard, first, count;  ///< first: in the shard
  };
  optim::Block block(const Piece& piece);

  const StateLayout& layout_;
  const optim::Optimizer& optimizer_;
  StateMemory& memory_;
  std::vector<Piece> pieces_, matrices_;
};

/// Updates what the model reads of the elements [first, first + count) of a shard from their fp32 weights; nothing if it
/// reads these in fp32. In the calling thread.
void round_weights(const StateLayout& layout, StateMemory& memory, const PlacedShard& shard, std::size_t first,
                   std::size_t count);

}  // namespace tessera::training
