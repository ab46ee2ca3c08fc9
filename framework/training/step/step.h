#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/arena.h"
#include "framework/training/setup/model_setup.h"
#include "framework/training/setup/optimization_setup.h"
#include "framework/training/setup/run_data.h"
#include "framework/training/step/gradient_sync.h"
#include "framework/training/step/pipeline.h"
#include "framework/training/step/reference_pass.h"
#include "framework/training/step/update_scalars.h"

namespace tessera::training {

struct NotFinite;

/// Bitwise fingerprint of what a rank computed in a step. The same computation gives the same print, unless hardware
/// fails.
struct StepPrint {
  std::uint64_t loss = 0;       ///< bits of the rank's own sum of losses (a double)
  std::uint32_t gradients = 0;  ///< CRC-32C of the reduced gradients of the rank's shards
  std::int32_t replica = 0;     ///< data-parallel rank
};

/// One training step in its phases: backward (all micro-batches), reduce (gradients of all ranks), commit (one sum of
/// norm and loss over the run), update, gather. All ranks call the same functions and get the same results. Owns the
/// memory that a step works in; with one rank it allocates nothing from the heap in steady state.
class TrainingStep {
 public:
  /// All references must outlive this object. `seed`: seed of dropout.
  TrainingStep(const ModelSetup& model, const OptimizationSetup& optimization, const RunData& data, ModelState& state,
               kernels::Threads& threads, std::uint64_t seed);

  /// Computes the gradients, times the loss scale, of the samples after the first `consumed` ones, as many as the batch
  /// plan says. Changes no weight; it may be called again for the same samples, with bitwise the same outcome. If a
  /// rank finds samples that cannot be used, all ranks start again with replacements. Collective. Throws Error if the
  /// ranks of a replica read different samples.
  StepOutcome backward(std::int64_t consumed);
  /// Fingerprint of the last backward().
  StepPrint print();
  /// The rates of update number `number`, from the present state of the schedule.
  UpdateRates rates(std::int64_t number) const;
  /// Lets the optimizer update the weights with these rates.
  void update(const UpdateRates& rates, const StepOutcome& outcome);
  /// Completes this rank's part of an update that another process began; see ModelState::complete_update.
  void complete_update(const UpdateRates& rates, const StepOutcome& outcome);

  /// Number of main gradients of the run that are exactly zero.
  std::int64_t zeros_in_gradients() const;
  /// L2 norm of all weights of the run.
  double weight_norm() const;
  /// Tokens of a row in the last backward(), padding included: mean over micro-batches and replicas. Collective.
  double mean_row_length() const;

  /// Mean loss over the tokens of `steps` full steps of a dataset, starting at sample `consumed`, without dropout.
  /// `progress` is called with the number of steps that this rank has completed.
  double evaluate(const data::Dataset& data, const data::Sampler& order, std::int64_t consumed, std::int64_t steps,
                  const std::function<void(std::int64_t steps)>& progress = {});

  /// What the objective reported in the last evaluate(), summed over all ranks.
  const nn::AuxiliaryLog& evaluated() const { return evaluated_; }
  /// Sets the files in which log-probabilities of the reference model are stored; null: they are not stored.
  void store_reference(std::unique_ptr<ReferenceCache> cache);

  /// Repeats the forward passes of the step that starts at `consumed`, and describes the first value of all ranks that
  /// is not finite: a weight, the output of a layer or an expert, or a gradient.
  std::string first_not_finite(std::int64_t consumed);

  /// Replaces the gaps in auxiliary() by those over all ranks; does nothing without experts. Collective.
  void share_router_gaps();
  /// What routers and prediction layers reported in the last backward(), summed over all ranks.
  const nn::AuxiliaryLog& auxiliary() const { return auxiliary_; }
  nn::AuxiliaryLog& auxiliary() { return auxiliary_; }
  /// Sets a function that every backward() calls when all gradients of this rank are final, before the commit. It
  /// returns whether the state of this rank is damaged, which becomes StepOutcome::damaged on all ranks.
  void when_reduced(std::function<bool()> call) { when_reduced_ = std::move(call); }
  /// For tests: sets a function that may change what this rank has computed: its sum of losses, and an element of its
  /// gradients (null if it has none). The gradients are not reduced yet, unless reduction overlaps with the backward
  /// pass.
  void when_computed(std::function<void(double& loss, float* gradient)> call) { when_computed_ = std::move(call); }
  /// Sets a function that all ranks call with the bad samples that each found in `data`, before they start again.
  /// Required if bad samples are not errors (dataset_config.bad_sample_limit).
  using BadSamples = std::function<void(const data::Dataset& data, const std::vector<data::BadSample>& found)>;
  void when_bad_samples(BadSamples call) { when_bad_samples_ = std::move(call); }
  const Arena& arena() const { return pipeline_.arena(); }

 private:
  bool backward(std::int64_t consumed, StepOutcome& outcome);
  BatchSource& referred(BatchSource& batches, std::int64_t micro_batches);
  void take_samples(const LoadedBatches& batches);
  data::SampleDigest samples_of_commit() const;
  double summed(double own) const;
  const parallel::ProcessGroups& processes() const { return model_.processes; }
  NotFinite weight_not_finite(std::int64_t consumed);
  NotFinite value_not_finite(std::int64_t consumed);
  NotFinite gradient_not_finite(std::int64_t consumed);

  const ModelSetup& model_;
  const OptimizationSetup& optimization_;
  const RunData& data_;
  ModelState& state_;
  kernels::Threads& threads_;
  ModelGradientSync sync_;
  CommunicatorChannel channel_;
  nn::AuxiliaryLog auxiliary_, evaluated_;
  std::vector<double> commit_;  ///< values that a step sums over the run
  Pipeline pipeline_;
  std::unique_ptr<ReferenceCache> cache_;
  std::optional<ReferencePass> reference_;
  BatchLoaders loaders_;
  UpdateScalars scalars_;
  double own_loss_ = 0;        ///< this rank's sum of losses in the last backward()
  double own_row_length_ = 0;  ///< tokens of a row, mean over the micro-batches of the last backward()
  std::function<bool()> when_reduced_;
  std::function<void(double& loss, float* gradient)> when_computed_;
  BadSamples when_bad_samples_;
};

}  // namespace tessera::training
