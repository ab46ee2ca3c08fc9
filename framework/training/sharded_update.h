#pragma once

#include <functional>
#include <span>
#include <vector>

#include "framework/resilience/state_sums.h"
#include "framework/resilience/undo_log.h"
#include "framework/training/state_memory.h"

namespace tessera::training {

/// What an undo log for a step of the optimizer on this rank's shards has to know; computed without a plan of the step,
/// which for the largest models would be long. Throws as UpdatePlan.
resilience::UndoLog::Extents undo_extents(const StateLayout& layout, const optim::Optimizer& optimizer);

/// How a step of an optimizer on this rank's shards is divided. Pure: a function of the layout and the optimizer's
/// rules.
class UpdatePlan {
 public:
  /// Elements of one shard that one thread updates at a time, or a matrix that the optimizer needs as a whole.
  struct Piece {
    std::size_t shard, first, count;  ///< first: in the shard
  };
  /// Throws ConfigError if the optimizer needs whole matrices that ranks share.
  UpdatePlan(const StateLayout& layout, const optim::Optimizer& optimizer);

  /// First the pieces that threads update in parallel, then the whole matrices.
  std::span<const Piece> pieces() const { return pieces_; }
  std::size_t parallel() const { return parallel_; }  ///< number of the former

 private:
  std::vector<Piece> pieces_;
  std::size_t parallel_ = 0;
};

/// One step of an optimizer on this rank's shards.
class ShardedUpdate {
 public:
  /// None is owned; all outlive this. `undo`, made for undo_extents() of their plan, lets a later process complete a
  /// step that is interrupted; nullptr: none can. `sums`, of as many pieces, are checked and kept by each step;
  /// nullptr: nothing is checked. Throws as UpdatePlan.
  ShardedUpdate(const StateLayout& layout, const optim::Optimizer& optimizer, StateMemory& memory,
                resilience::UndoLog* undo = nullptr, resilience::StateSums* sums = nullptr);

  /// Updates weights and optimizer state from the gradients, then the 16-bit weights of the same shards. `groups` are
  /// the scalars of each group of parameters, which the optimizer prepares in place; `group_of[i]` is the group of
  /// parameter i of the layout; empty: all are in the first. With an undo log, call its begin() before, or not, to
  /// complete the step that was begun last: elements that are complete stay as they are.
  void step(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);

  /// The sums of the state as it is now are right: after it was changed otherwise than by a step.
  void seal(kernels::Threads& threads);
  /// How the state differs from its sums; without sums: not at all.
  resilience::Damage damage(kernels::Threads& threads);

  /// `call` is called in every step with an undo log, in the midst of the update of a block in the middle: for tests.
  void call_halfway(std::function<void()> call) { halfway_ = std::move(call); }

 private:
  struct Scalars;
  using Piece = UpdatePlan::Piece;
  const PlacedShard& shard_of(const Piece& piece) const { return layout_.shards()[piece.shard]; }
  optim::Block block(const Piece& piece);
  void check(std::size_t index, const resilience::StateSums::Sums& found);
  bool model_reads(const Piece& piece) const;
  void update(std::size_t index, const Scalars& scalars, int writer);
  void update_whole(kernels::Threads& threads, std::size_t index, const Scalars& scalars);

  const StateLayout& layout_;
  const optim::Optimizer& optimizer_;
  StateMemory& memory_;
  resilience::UndoLog* undo_;
  resilience::StateSums* sums_;
  UpdatePlan plan_;
  std::function<void()> halfway_;
};

/// Updates what the model reads of the elements [first, first + count) of a shard from their fp32 weights; nothing if
/// it reads these in fp32. In the calling thread.
void round_weights(const StateLayout& layout, StateMemory& memory, const PlacedShard& shard, std::size_t first,
                   std::size_t count);

}  // namespace tessera::training
