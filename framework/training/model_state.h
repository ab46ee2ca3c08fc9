#pragma once

#include <memory>

#include "framework/model/model.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/shared_state.h"

namespace tessera::training {

/// All numbers that training changes, of one rank's part of a model: weights, main gradients and optimizer state. One
/// SharedState for each group of ranks that has parameters alike: the dense layers, and the experts if other ranks have
/// those of this rank than have its dense layers.
class ModelState {
 public:
  /// Numbers the leaves (Leaf::number) in the order of the parts. At least one part.
  explicit ModelState(std::vector<std::unique_ptr<SharedState>> parts);
  /// Of one part; as SharedState.
  ModelState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather = false);
  /// For one rank that has the whole model, in new memory.
  ModelState(model::Model& model, const optim::Optimizer* optimizer);

  std::span<const std::unique_ptr<SharedState>> parts() const { return parts_; }
  /// The parameters of all parts, in order.
  std::vector<const nn::Parameter*> parameters() const;

  // Of the only part; BugError if there are several.
  const StateLayout& layout() const { return only().layout(); }
  std::span<float> weights() { return only().weights(); }
  std::span<float> gradients() { return only().gradients(); }
  BucketReducer& reducer() { return only().reducer(); }

  // As in SharedState, of all parts.
  void initialise(kernels::Threads& threads, std::uint64_t seed);
  void weights_changed();
  void weights_needed();
  /// `group_of` has the parameters of all parts, in order.
  void update(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);
  /// The same with one group.
  void update(kernels::Threads& threads, optim::StepScalars scalars) { update(threads, {&scalars, 1}, {}); }
  void begin_update();
  void complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                       std::span<const std::size_t> group_of);
  /// Of the first part.
  void call_halfway(std::function<void()> call) { parts_.front()->call_halfway(std::move(call)); }
  /// Declares all gradients stale (Leaf::make_grad_stale), and sets the padding between them to zero.
  void clear_gradients();

  const std::vector<std::span<const float>>& owned_gradients() const { return owned_gradients_; }
  /// The first element of the gradients that counts as this rank's in sums over the run: of its shards if they are
  /// `reduced`, else of what its replica computes. Null if there is none.
  float* first_gradient(bool reduced);
  const std::vector<std::span<const float>>& owned_weights() const { return owned_weights_; }
  StateBytes bytes() const;
  /// Number of elements of owned_gradients() that are padding.
  std::int64_t owned_padding() const;
  std::vector<checkpoint::TensorRange> weight_ranges(StateScope scope = StateScope::held);
  std::vector<checkpoint::TensorRange> optimizer_ranges(StateScope scope = StateScope::held);

 private:
  using Update = void (SharedState::*)(kernels::Threads&, std::span<optim::StepScalars>, std::span<const std::size_t>);
  void update_parts(Update update, kernels::Threads& threads, std::span<optim::StepScalars> groups,
                    std::span<const std::size_t> group_of);
  SharedState& only() const;

  std::vector<std::unique_ptr<SharedState>> parts_;
  std::vector<std::span<const float>> owned_gradients_, owned_weights_;
  std::vector<optim::StepScalars> scalars_;  ///< of the update of one part
};

/// The parameters of the chunks of one rank, in order.
std::vector<nn::Parameter*> parameters_of(std::span<model::Model* const> chunks);

/// Parameters that one group of ranks has alike.
struct SharedParameters {
  std::vector<nn::Parameter*> parameters;
  bool experts = false;  ///< they are shared as experts are, else as dense layers are
};
/// Divides the parameters of a rank by the groups that have them alike; those without parameters are left out, but for
/// the dense ones.
std::vector<SharedParameters> groups_of_parameters(std::vector<nn::Parameter*> parameters,
                                                   const parallel::MeshSizes& sizes);

/// The memory that training `parameters` takes when `ranks` data-parallel ranks share the optimizer state, on the rank
/// that has most: exact, nothing is allocated. Throws ConfigError for sizes of 2^63 bytes or more.
StateBytes bytes_of_state(std::vector<nn::Parameter*> parameters, const optim::Optimizer& optimizer, int ranks = 1);

}  // namespace tessera::training
