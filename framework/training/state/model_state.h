#pragma once

#include <memory>

#include "framework/model/model.h"
#include "framework/parallel/process_groups.h"
#include "framework/training/state/frozen_weights.h"
#include "framework/training/state/shared_state.h"

namespace tessera::training {

/// The state of one rank's part of a model. What training changes, weights, main gradients and optimizer state, has one
/// SharedState (part) for each group of ranks with the same parameters: the dense layers, and the experts if they are
/// shared by other ranks than the dense layers. Frozen parameters are apart.
class ModelState {
 public:
  /// Numbers the leaves (Leaf::number) in the order of the parts. Throws BugError if there is no part.
  explicit ModelState(std::vector<std::unique_ptr<SharedState>> parts, FrozenWeights frozen = {});
  /// A state of one part; arguments as for SharedState.
  ModelState(StateLayout layout, StateMemory memory, const optim::Optimizer* optimizer, bool overlaps_gather = false);
  /// A state for one rank with the whole model, in newly allocated memory.
  ModelState(model::Model& model, const optim::Optimizer* optimizer);

  std::span<const std::unique_ptr<SharedState>> parts() const { return parts_; }
  /// The trained parameters: those of all parts, in order.
  std::vector<const nn::Parameter*> parameters() const;
  FrozenWeights& frozen() { return frozen_; }

  // These refer to the only part; they throw BugError if there are several.
  const StateLayout& layout() const { return only().layout(); }
  std::span<float> weights() { return only().weights(); }
  std::span<float> gradients() { return only().gradients(); }
  BucketReducer& reducer() { return only().reducer(); }

  // These call the functions of SharedState for all parts.
  /// Trained parameters only; FrozenWeights::initialise does the others.
  void draw(kernels::Threads& threads, std::uint64_t seed,
            const std::function<bool(const std::string&)>& is_given = {});
  /// All parameters of a whole model.
  void initialise(kernels::Threads& threads, std::uint64_t seed);
  /// Computes the initial values that follow from other parameters (Parameter::derive), which must have theirs; not of
  /// those whose name `is_given` is true for. Collective, as weights_changed().
  void derive_initial(kernels::Threads& threads, const parallel::ProcessGroups* groups,
                      const std::function<bool(const std::string&)>& is_given = {});
  void weights_changed();
  /// Also throws as FrozenWeights::require_intact.
  void weights_needed();
  /// `group_of` has one entry for each parameter of all parts, in order.
  void update(kernels::Threads& threads, std::span<optim::StepScalars> groups, std::span<const std::size_t> group_of);
  /// The same with one group of parameters.
  void update(kernels::Threads& threads, optim::StepScalars scalars) { update(threads, {&scalars, 1}, {}); }
  void complete_update(kernels::Threads& threads, std::span<optim::StepScalars> groups,
                       std::span<const std::size_t> group_of);
  /// ShardedUpdate::watch of all parts. Frozen parameters do not change.
  void watch(const std::shared_ptr<checkpoint::OpenedState>& snapshot);
  /// For the copies of the snapshots that it watches, one after the other.
  std::shared_ptr<checkpoint::CopyMemory> copy_memory();
  /// Marks all gradients as stale (Leaf::make_grad_stale), and sets the padding between them to zero.
  void clear_gradients();

  const std::vector<std::span<const float>>& owned_gradients() const { return owned_gradients_; }
  /// The first gradient that this rank contributes to sums over the run: of its shards if the gradients are `reduced`,
  /// else of those that its replica computes. Null if it contributes none.
  float* first_gradient(bool reduced);
  const std::vector<std::span<const float>>& owned_weights() const { return owned_weights_; }
  StateBytes bytes() const;
  /// Number of padding elements in owned_gradients().
  std::int64_t owned_padding() const;
  /// Of trained and frozen parameters; see FrozenWeights::ranges.
  std::vector<checkpoint::TensorRange> weight_ranges(StateScope scope = StateScope::held);
  std::vector<checkpoint::TensorRange> trained_ranges(StateScope scope = StateScope::held);
  std::vector<checkpoint::TensorRange> optimizer_ranges(StateScope scope = StateScope::held);

 private:
  using Update = void (SharedState::*)(kernels::Threads&, std::span<optim::StepScalars>, std::span<const std::size_t>);
  void update_parts(Update update, kernels::Threads& threads, std::span<optim::StepScalars> groups,
                    std::span<const std::size_t> group_of);
  SharedState& only() const;

  std::vector<std::unique_ptr<SharedState>> parts_;
  FrozenWeights frozen_;
  std::vector<std::span<const float>> owned_gradients_, owned_weights_;
  std::vector<optim::StepScalars> scalars_;  ///< scalars of the update of one part
  std::shared_ptr<checkpoint::CopyMemory> copy_memory_;
};

/// The parameters of the chunks of one rank, in order.
std::vector<nn::Parameter*> parameters_of(std::span<model::Model* const> chunks);

/// Parameters that are shared by one group of ranks.
struct SharedParameters {
  std::vector<nn::Parameter*> parameters;
  bool experts = false;  ///< shared by the ranks that share experts; false: by those that share dense layers
};
/// Divides the trained parameters of a rank by the groups of ranks that share them. Groups without parameters are left
/// out, except the dense one.
std::vector<SharedParameters> groups_of_parameters(std::vector<nn::Parameter*> parameters,
                                                   const parallel::MeshSizes& sizes);
/// The frozen ones of the parameters of a rank, with who saves them.
FrozenWeights frozen_weights(std::span<nn::Parameter* const> parameters, const parallel::ProcessGroups& processes);

/// The memory, in bytes, that training `parameters` needs if `ranks` data-parallel ranks share the optimizer state, on
/// the rank that needs most. Exact; allocates nothing of it. Throws ConfigError for sizes of 2^63 bytes or more.
StateBytes bytes_of_state(std::vector<nn::Parameter*> parameters, const optim::Optimizer& optimizer, int ranks = 1);

}  // namespace tessera::training
