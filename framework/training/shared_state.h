#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/training/sharded_update.h"
#include "framework/training/state_exchange.h"

namespace tessera::training {

/// The numbers that training changes, of the parameters that one group of ranks has alike: weights, main gradients,
/// which these ranks sum, and optimizer state, which they may share. Binds the parameters to their memory, and keeps
/// what the model reads equal to the fp32 weights. What lies where is StateLayout's; the memory is StateMemory's.
class SharedState {
 public:
  /// For training with `optimizer`, which must outlive this as the parameters of the layout must; nullptr (then the
  /// layout too was made without): weights alone. `overlaps_gather`: update() does not wait for the other ranks'
  /// shards, weights_needed() does. `undo` and `sums`: as in ShardedUpdate. The content of the memory is not changed.
  SharedState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather = false,
              std::unique_ptr<resilience::UndoLog> undo = nullptr,
              std::unique_ptr<resilience::StateSums> sums = nullptr);
  /// For one rank that has all of each parameter, in new memory.
  SharedState(std::vector<nn::Parameter*> parameters, const optim::Optimizer* optimizer);
  SharedState(const SharedState&) = delete;
  SharedState& operator=(const SharedState&) = delete;

  const StateLayout& layout() const { return layout_; }
  /// The fp32 weights of all parameters, in the layout of FlatParameters. Throws BugError if this rank has only shards
  /// of some.
  std::span<float> weights();
  /// The main gradients, likewise; empty without an optimizer.
  std::span<float> gradients() { return memory_.floats(StateArray::gradients); }
  /// Declares all gradients stale (Leaf::make_grad_stale), and sets the padding between them to zero.
  void clear_gradients();
  /// Reduces the gradients over the data-parallel ranks.
  BucketReducer& reducer() { return reducer_; }

  /// Gives all weights their initial values, which do not depend on the layout. Collective as weights_changed.
  void initialise(kernels::Threads& threads, std::uint64_t seed);
  /// Lets what the model reads follow the fp32 weights, after someone wrote into weight_ranges(). Collective over the
  /// data-parallel ranks.
  void weights_changed();
  /// Waits for the weights that other ranks updated. Call it before the model reads weights again.
  void weights_needed();

  /// One step of the optimizer on every weight: each rank updates its shards, then the ranks exchange them. Scalars as
  /// in ShardedUpdate::step. Throws BugError without an optimizer.
  void update(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);
  /// With an undo log: before an update; nothing without.
  void begin_update();
  /// With an undo log: completes this rank's part of the update that was begun last, whose gradients are in the memory.
  /// The ranks do not exchange their shards: weights_changed() does.
  void complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                       std::span<const std::size_t> group_of);
  // As in ShardedUpdate.
  void seal(kernels::Threads& threads);
  resilience::Damage damage(kernels::Threads& threads);
  /// The worst damage that updates found since the state was sealed.
  resilience::Damage noted_damage() const { return sums_ ? sums_->noted() : resilience::Damage::none; }
  /// What all data-parallel ranks have alike, whoever updates it: the weights that the model reads.
  std::vector<std::span<const std::byte>> model_weights() const;
  /// What all tensor-parallel ranks have alike: weights that are not sharded over them, as norms, and without a
  /// distributed optimizer their state.
  std::vector<std::span<const std::byte>> unsharded_elements() const;

  /// The state of each shard of this rank, shard by shard: fp32 weights, then state tensors. Who writes them calls
  /// weights_changed() afterwards.
  std::vector<std::span<float>> shard_elements();
  /// The main gradients of each shard.
  std::vector<std::span<float>> shard_gradients();
  /// As ShardedUpdate::call_halfway.
  void call_halfway(std::function<void()> call);

  /// Views of the elements that this rank owns (StateScope::owned), for sums over the run. May include padding, which
  /// is zero; StateLayout::owned_padding counts it.
  const std::vector<std::span<const float>>& owned_gradients() const { return owned_gradients_; }
  const std::vector<std::span<const float>>& owned_weights() const { return owned_weights_; }

  /// The fp32 weights under their global names, as views: to be read, or filled and then followed by weights_changed().
  std::vector<checkpoint::TensorRange> weight_ranges(StateScope scope = StateScope::held);
  /// The optimizer state as "optimizer.<state tensor>.<parameter>".
  std::vector<checkpoint::TensorRange> optimizer_ranges(StateScope scope = StateScope::held);

 private:
  void connect(const optim::Optimizer* optimizer);
  void bind();
  std::vector<checkpoint::TensorRange> ranges(const std::vector<StateBox>& boxes, const std::string& prefix);

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
