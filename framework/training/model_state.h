#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "framework/checkpoint/checkpoint.h"
#include "framework/model/model.h"
#include "framework/training/sharded_update.h"
#include "framework/training/state_exchange.h"

namespace tessera::training {

/// All numbers that training changes, of one rank's part of a model: weights, main gradients and optimizer state. Binds
/// the model's parameters to their memory, and keeps what the model reads equal to the fp32 weights. What lies where is
/// StateLayout's; the memory is StateMemory's.
class ModelState {
 public:
  /// For training with `optimizer`, which must outlive this as the parameters of the layout must; nullptr (then the
  /// layout too was made without): weights alone. `overlaps_gather`: update() does not wait for the other ranks' shards,
  /// weights_needed() does. The content of the memory is not changed.
  ModelState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather = false);
  /// For one rank that has the whole model, in new memory.
  ModelState(model::Model& model, const optim::Optimizer* optimizer);
  ModelState(const ModelState&) = delete;
  ModelState& operator=(const ModelState&) = delete;

  const StateLayout& layout() const { return layout_; }
  /// The fp32 weights of all parameters, in the layout of FlatParameters. Throws BugError if this rank has only shards of
  /// some.
  std::span<float> weights();
  /// The main gradients, likewise; empty without an optimizer.
  std::span<float> gradients() { return memory_.floats(StateArray::gradients); }
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
  /// The same with one group.
  void update(kernels::Threads& threads, optim::StepScalars scalars) { update(threads, {&scalars, 1}, {}); }

  /// Views of the elements that this rank owns (StateScope::owned), for sums over the run. May include padding, which is
  /// zero; StateLayout::owned_padding counts it.
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
  GradientReducer reducer_;
  WeightGather gather_;
  std::optional<ShardedUpdate> update_;
  std::vector<std::span<const float>> owned_gradients_, owned_weights_;
};

/// The parameters of the chunks of one rank, in order.
std::vector<nn::Parameter*> parameters_of(std::span<model::Model* const> chunks);

/// The memory that training `parameters` takes when `ranks` data-parallel ranks share the optimizer state, on the rank
/// that has most: exact, nothing is allocated. Throws ConfigError for sizes of 2^63 bytes or more.
StateBytes bytes_of_state(std::vector<nn::Parameter*> parameters, const optim::Optimizer& optimizer, int ranks = 1);

}  // namespace tessera::training
