#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/sample_digest.h"
#include "framework/nn/parameter.h"
#include "framework/training/setup/optimization_setup.h"

namespace tessera::training {

/// Result of the backward passes of a step, equal on all ranks unless noted.
struct StepOutcome {
  double loss = 0;  ///< sum over the tokens of all micro-batches divided by their number, as Megatron-LM reports it
  double grad_norm = 0;             ///< norm of all main gradients, without the loss scale and before clipping
  double gradient_factor = 1;       ///< factor to apply to the main gradients: 1 / loss scale, 1 / tokens
  double data_wait_seconds = 0;     ///< time waiting for micro-batches; this rank only
  double stage_seconds = 0;         ///< time in the pipeline, sum over all ranks
  double stage_wait_seconds = 0;    ///< part of it waiting for other stages, sum over all ranks
  double flops = 0;                 ///< floating-point operations of the model (Model::flops), sum over the run
  bool damaged = false;             ///< on some rank an update found changed weights or optimizer state in memory
  data::SampleDigest samples = {};  ///< digest of all samples of the step

  /// Whether loss and gradient norm are finite; if not, the gradients must not be applied.
  bool finite() const;
};

/// The rates of one update, with which any rank can perform it. A plain value, like StepOutcome.
struct UpdateRates {
  std::int64_t number = 1;    ///< number of the update, from 1
  double learning_rate = 0;   ///< from the schedule
  double decoupled_rate = 0;  ///< learning rate of embeddings and output layer, if they have their own (decoupled_lr)
  double weight_decay = 0;
};

/// The optimizer's scalars for one step, for each group of parameters that are treated in the same way. A function of
/// the recipe, the rates and outcome of the step, and the parameters' names and roles, so any rank can compute it for
/// the parameters of any other.
class UpdateScalars {
 public:
  /// `optimization` must outlive this object; `parameters` are only read here.
  UpdateScalars(const OptimizationSetup& optimization, std::span<const nn::Parameter* const> parameters);
  /// The scalars of one step, one for each group; valid until the next call.
  std::span<optim::StepScalars> at(const UpdateRates& rates, const StepOutcome& outcome);
  /// The group of each parameter, in the order of the parameters.
  std::span<const std::size_t> group_of() const { return group_of_; }

 private:
  const OptimizationSetup& optimization_;
  std::vector<optim::ParameterGroup> groups_;  ///< one for each kind of treatment
  std::vector<std::size_t> group_of_;
  std::vector<optim::StepScalars> scalars_;  ///< one for each group
};

}  // namespace tessera::training
