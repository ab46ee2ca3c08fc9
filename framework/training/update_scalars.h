#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/data/sample_digest.h"
#include "framework/nn/parameter.h"
#include "framework/training/optimization_setup.h"

namespace tessera::training {

/// The result of the backward passes of a step, the same on all ranks.
struct StepOutcome {
  double loss = 0;  ///< sum over the tokens of all micro-batches divided by their number, as Megatron-LM reports it
  double grad_norm = 0;             ///< of all main gradients together, without the loss scale and before clipping
  double gradient_factor = 1;       ///< still to be multiplied with the main gradients: 1 / loss scale, 1 / tokens
  double data_wait_seconds = 0;     ///< of this rank: waiting for micro-batches
  double stage_seconds = 0;         ///< of all ranks: in the pipeline
  double stage_wait_seconds = 0;    ///< of all ranks: of that, waiting for other stages
  bool damaged = false;             ///< an update found weights or optimizer state of some rank changed in memory
  data::SampleDigest samples = {};  ///< of all samples of the step

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

/// What an optimizer has to know for one step, for each group of parameters that are treated alike. A function of the
/// recipe, the rates and the outcome of the step, and of the parameters' names and roles: any rank can compute it for
/// the parameters of any other.
class UpdateScalars {
 public:
  /// `optimization` is not owned and outlives this; the parameters are read here only.
  UpdateScalars(const OptimizationSetup& optimization, std::span<const nn::Parameter* const> parameters);
  /// Of one step; valid until the next call.
  std::span<optim::StepScalars> at(const UpdateRates& rates, const StepOutcome& outcome);
  /// The group of each parameter, in their order.
  std::span<const std::size_t> group_of() const { return group_of_; }

 private:
  const OptimizationSetup& optimization_;
  std::vector<optim::ParameterGroup> groups_;  ///< each kind of treatment that occurs
  std::vector<std::size_t> group_of_;
  std::vector<optim::StepScalars> scalars_;  ///< of each group
};

}  // namespace tessera::training
