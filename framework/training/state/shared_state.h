#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/state/sharded_update.h"
#include "framework/training/state/state_exchange.h"

namespace tessera::training {

/// What training changes in parameters that one group of ranks has in common: weights, main gradients, which these
/// ranks sum, and optimizer state, which may be distributed over them. Binds the parameters to their memory, and keeps
/// the weights that the model reads equal to the fp32 weights. StateLayout defines what is where; StateMemory is the
/// memory.
class SharedState {
 public:
  /// For training with `optimizer`; null (then the layout was also made without one): only weights. `optimizer` and the
  /// parameters of the layout must outlive this object. `overlaps_gather`: update() does not wait for the other ranks'
  /// shards; weights_needed() does. `undo` and `sums`: as for ShardedUpdate. The content of the memory is not changed.
  SharedState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather = false,
              std::unique_ptr<resilience::UndoLog> undo = nullptr,
              std::unique_ptr<resilience::StateSums> sums = nullptr);
  /// For one rank with all elements of each parameter, in newly allocated memory.
  SharedState(std::vector<nn::Parameter*> parameters, const optim::Optimizer* optimizer);
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  const StateLayout& layout() const { return layout_; }
  /// The fp32 weights of all parameters, in the layout of FlatParameters. Throws BugError if this rank has only shards
  /// of some parameters.
  std::span<float> weights();
  /// The main gradients, in the same layout; empty without an optimizer.
  std::span<float> gradients() { return memory_.floats(StateArray::gradients); }
  /// Marks all gradients as stale (Leaf::make_grad_stale), and sets the padding between them to zero.
  void clear_gradients();
  /// Reduces the gradients over the data-parallel ranks.
  BucketReducer& reducer() { return reducer_; }

  /// Draws initial values, which do not depend on the parallel layout, of all weights but those for whose name
  /// `is_given` (empty: none) is true. weights_changed() must follow.
  void draw(kernels::Threads& threads, std::uint64_t seed, const std::function<bool(const std::string&)>& is_given);
  /// Draws all weights. Collective as weights_changed().
  void initialise(kernels::Threads& threads, std::uint64_t seed) { draw(threads, seed, {}), weights_changed(); }
  /// Updates the weights that the model reads after the fp32 weights were written through weight_ranges(). Collective
  /// over the data-parallel ranks.
  void weights_changed();
  /// Gives the fp32 weights of this rank's shards the values of the 16-bit weights that the model reads.
  void round_main_weights();
  /// Waits for the weights that other ranks have updated. Call it before the model reads weights again.
  void weights_needed();

  /// One optimizer step on every weight: each rank updates its shards, then the ranks exchange them. Arguments as for
  /// ShardedUpdate::step(). Throws BugError without an optimizer.
  void update(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);
  /// The steps on this rank's shards: what begins, checks and watches them. Throws BugError without an optimizer.
  ShardedUpdate& updates();
  /// Completes this rank's part of the update that was begun last, whose gradients are in memory. The ranks do not
  /// exchange their shards; call weights_changed() for that. Throws BugError without an undo log.
  void complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                       std::span<const std::size_t> group_of);
  /// Memory that is equal on all data-parallel ranks: the weights that the model reads.
  std::vector<std::span<const std::byte>> model_weights() const;
  /// Memory that is equal on all tensor-parallel ranks: weights that are not sharded over them, for example norms, and,
  /// without a distributed optimizer, their optimizer state.
  std::vector<std::span<const std::byte>> unsharded_elements() const;

  /// The state of this rank's shards, shard by shard: fp32 weights, then the optimizer's state tensors. After writing
  /// them call weights_changed().
  std::vector<std::span<float>> shard_elements();
  /// The main gradients of each shard.
  std::vector<std::span<float>> shard_gradients();

  /// Views of the elements that this rank owns (StateScope::owned), for sums over the run. They may include padding,
  /// which is zero; StateLayout::owned_padding() counts it.
  const std::vector<std::span<const float>>& owned_gradients() const { return owned_gradients_; }
  const std::vector<std::span<const float>>& owned_weights() const { return owned_weights_; }

  /// Views of the fp32 weights with their global names, to read or to write; after writing call weights_changed().
  std::vector<checkpoint::TensorRange> weight_ranges(StateScope scope = StateScope::held);
  /// Views of the optimizer state, named "optimizer.<state tensor>.<parameter>".
  std::vector<checkpoint::TensorRange> optimizer_ranges(StateScope scope = StateScope::held);

 private:
  void connect(const optim::Optimizer* optimizer);
  void bind();
  template <class RangeOf>
  std::vector<checkpoint::TensorRange> ranges(StateScope scope, const std::string& prefix, const RangeOf& range_of);

  StateLayout layout_;
  StateMemory memory_;
  bool overlaps_gather_ = false;
  std::unique_ptr<resilience::UndoLog> undo_;
  std::unique_ptr<resilience::StateSums> sums_;
  GradientReducer reducer_;
  WeightGather gather_;
  std::optional<ShardedUpdate> update_;
  std::vector<std::span<const float>> owned_gradients_, owned_weights_;
};

}  // namespace tessera::training
