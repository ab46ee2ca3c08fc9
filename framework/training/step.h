#pragma once

#include <functional>
#include <string>

#include "framework/tensor/arena.h"
#include "framework/training/gradient_sync.h"
#include "framework/training/model_setup.h"
#include "framework/training/optimization_setup.h"
#include "framework/training/pipeline.h"
#include "framework/training/run_data.h"

namespace tessera::training {

/// The result of the backward passes of a step, the same on all ranks.
struct StepOutcome {
  double loss = 0;  ///< sum over the tokens of all micro-batches divided by their number, as Megatron-LM reports it
  double grad_norm = 0;           ///< of all main gradients together, without the loss scale and before clipping
  double gradient_factor = 1;     ///< still to be multiplied with the main gradients: 1 / loss scale, 1 / tokens
  double data_wait_seconds = 0;   ///< of this rank: waiting for micro-batches
  double stage_seconds = 0;       ///< of all ranks: in the pipeline
  double stage_wait_seconds = 0;  ///< of all ranks: of that, waiting for other stages

  /// Whether loss and gradient norm are finite: else the gradients must not reach a weight.
  bool finite() const;
};

/// The rates of one update, by which any rank can make it. A plain value, as StepOutcome is.
struct UpdateRates {
  std::int64_t number = 1;    ///< of the update, from 1
  double learning_rate = 0;   ///< of the schedule
  double decoupled_rate = 0;  ///< of embeddings and output layer, if they have their own
  double weight_decay = 0;
};

/// One training step in its phases: backward (all micro-batches), reduce (gradients of all ranks), commit (one sum of
/// norm and loss over the run), update, gather. All ranks call the same functions and get the same results. Owns the
/// memory that a step works in; in steady state of one rank it allocates nothing from the heap.
class TrainingStep {
 public:
  /// None is owned; all outlive this. `seed` is that of dropout.
  TrainingStep(const ModelSetup& model, const OptimizationSetup& optimization, const RunData& data, ModelState& state,
               kernels::Threads& threads, std::uint64_t seed);

  /// Computes the gradients, times the loss scale, of the samples that follow `consumed`, as many as the batch plan says.
  /// Changes no weight.
  StepOutcome backward(std::int64_t consumed);
  /// The rates of update `number` by the schedule as it is now.
  UpdateRates rates(std::int64_t number) const;
  /// Lets the optimizer apply them.
  void update(const UpdateRates& rates, const StepOutcome& outcome);
  /// Completes this rank's part of an update that another process began, as ModelState::complete_update.
  void complete_update(const UpdateRates& rates, const StepOutcome& outcome);

  /// Number of main gradients of the run that are exactly zero.
  std::int64_t zeros_in_gradients() const;
  /// L2 norm of all weights of the run.
  double weight_norm() const;

  /// Mean loss over the tokens of `steps` whole steps of a split, beginning at sample `consumed`. Without dropout; nothing
  /// is recorded. `progress` is called with the number of steps that this rank has completed.
  double evaluate(const data::Dataset& data, const data::Sampler& order, std::int64_t consumed, std::int64_t steps,
                  const std::function<void(std::int64_t steps)>& progress = {});

  /// Repeats the forward passes of the step that begins at `consumed` and describes the first value that is not finite: a
  /// weight, the output of a layer, or a gradient.
  std::string first_not_finite(std::int64_t consumed);

  /// Makes the gaps in auxiliary() those of all ranks; of a run without experts does nothing.
  void share_router_gaps();
  /// What routers and prediction layers reported in the last backward(), of all ranks.
  const nn::AuxiliaryLog& auxiliary() const { return auxiliary_; }
  nn::AuxiliaryLog& auxiliary() { return auxiliary_; }
  /// `call` is called in every backward() when all gradients of this rank are final, before the commit.
  void when_reduced(std::function<void()> call) { when_reduced_ = std::move(call); }
  const Arena& arena() const { return pipeline_.arena(); }

 private:
  void sort_into_groups();
  void set_scalars(const UpdateRates& rates, const StepOutcome& outcome);
  double summed(double own) const;
  const parallel::ProcessGroups& processes() const { return model_.processes; }
  std::string not_finite_here(std::int64_t consumed);
  std::string not_finite_value(std::int64_t consumed);

  const ModelSetup& model_;
  const OptimizationSetup& optimization_;
  const RunData& data_;
  ModelState& state_;
  kernels::Threads& threads_;
  std::uint64_t seed_;
  ModelGradientSync sync_;
  CommunicatorChannel channel_;
  nn::AuxiliaryLog auxiliary_;
  std::vector<double> commit_;  ///< what a step sums over the run
  Pipeline pipeline_;
  BatchLoaders loaders_;
  std::vector<optim::ParameterGroup> groups_;  ///< each kind of treatment that occurs
  std::vector<std::size_t> group_of_;          ///< of each parameter, in the order of the layout
  std::vector<optim::StepScalars> scalars_;    ///< of each group in this step
  std::function<void()> when_reduced_;
};

}  // namespace tessera::training
