#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "framework/checkpoint/opened_state.h"
#include "framework/resilience/state_sums.h"
#include "framework/resilience/undo_log.h"
#include "framework/training/state/state_memory.h"

namespace tessera::training {

/// Sizes of the undo log for an optimizer step on this rank's shards, computed without a plan of the step, which would
/// be long for the largest models. Throws ConfigError as UpdatePlan.
resilience::UndoLog::Extents undo_extents(const StateLayout& layout, const optim::Optimizer& optimizer);

/// How an optimizer step on this rank's shards is divided: a pure function of the layout and the optimizer's rules.
class UpdatePlan {
 public:
  /// A range of elements of one shard that one thread updates, or a matrix that the optimizer needs as a whole.
  struct Piece {
    std::size_t shard, first,
        count;  ///< `shard`: index in the layout; `first`: index of the first element in the shard
  };
  /// Throws ConfigError if the optimizer needs whole matrices but ranks share them.
  UpdatePlan(const StateLayout& layout, const optim::Optimizer& optimizer);

  /// First the pieces that threads update in parallel, then the whole matrices.
  std::span<const Piece> pieces() const { return pieces_; }
  std::size_t parallel() const { return parallel_; }  ///< number of pieces that are updated in parallel

 private:
  std::vector<Piece> pieces_;
  std::size_t parallel_ = 0;
};

/// Performs optimizer steps on this rank's shards.
class ShardedUpdate {
 public:
  /// All references must outlive this object. `undo`, created for undo_extents(), lets a later process complete an
  /// interrupted step; null: not possible. `sums`, with one entry per piece, are checked and stored by each step; null:
  /// no checks. Throws ConfigError as UpdatePlan.
  ShardedUpdate(const StateLayout& layout, const optim::Optimizer& optimizer, StateMemory& memory,
                resilience::UndoLog* undo = nullptr, resilience::StateSums* sums = nullptr);

  /// Updates weights and optimizer state from the gradients, then the 16-bit weights of the same shards. `groups`: the
  /// scalars of each group of parameters, which the optimizer modifies in place; `group_of[i]`: group of parameter i of
  /// the layout; empty: all parameters are in group 0. With an undo log, call begin() before a new step; without
  /// that call the step that was begun last is completed, and elements that are complete stay unchanged.
  void step(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);

  /// Prepares the undo log for a step; does nothing without an undo log.
  void begin() {
    if (undo_) undo_->begin();
  }

  /// Stores the checksums of the present state. Call it after the state was changed by anything else than a step.
  void seal(kernels::Threads& threads);
  /// Compares the state with its checksums; Damage::none without checksums.
  resilience::Damage damage(kernels::Threads& threads);
  /// The most serious damage that steps found since seal().
  resilience::Damage noted_damage() const { return sums_ ? sums_->noted() : resilience::Damage::none; }
  /// StateSums::stored_checksum(); 0 without checksums.
  std::uint32_t stored_checksum() const { return sums_ ? sums_->stored_checksum() : 0; }

  /// Updates call snapshot->before_change() of all that they change, until another snapshot, or null, is given.
  void watch(std::shared_ptr<checkpoint::OpenedState> snapshot) { snapshot_ = std::move(snapshot); }

  /// For tests: `call` is called in every step with an undo log, in the middle of the update of a block.
  void call_halfway(std::function<void()> call) { halfway_ = std::move(call); }

 private:
  struct Scalars;
  using Piece = UpdatePlan::Piece;
  const PlacedShard& shard_of(const Piece& piece) const { return layout_.shards()[piece.shard]; }
  optim::Block block(const Piece& piece);
  void before_change(const optim::Block& block);
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
  std::shared_ptr<checkpoint::OpenedState> snapshot_;  ///< null: nothing is being saved
  std::function<void()> halfway_;
};

/// Computes the weights that the model reads from the fp32 weights, for the elements [first, first + count) of a shard.
/// Does nothing if the model reads fp32. Runs in the calling thread.
void round_weights(const StateLayout& layout, StateMemory& memory, const PlacedShard& shard, std::size_t first,
                   std::size_t count);

}  // namespace tessera::training
