#pragma once

#include <string>

#include "framework/tensor/arena.h"
#include "framework/training/model_state.h"
#include "framework/training/parts.h"
#include "framework/training/pipeline.h"

namespace tessera {

/// What a step found.
struct StepOutcome {
  double loss = 0;             ///< sum over the tokens of all micro batches by their number, as Megatron-LM reports it
  double grad_norm = 0;        ///< of all main gradients together, without the loss scale and before clipping
  double gradient_factor = 1;  ///< what is still to be multiplied with the main gradients: 1 / loss scale, 1 / tokens
  double data_wait_seconds = 0;                      ///< of this process: waiting for micro-batches
  double stage_seconds = 0, stage_wait_seconds = 0;  ///< of all processes: micro batches; waiting for other stages
  bool finite() const;
};

/// One training step in its phases: backward (all micro batches), reduce (gradients of all processes), commit (one sum
/// of norm and loss over the run), update, gather. All processes call the same functions and get the same answers. Owns
/// the memory that a step works in; in steady state of one process it takes nothing from the heap.
class TrainingStep {
 public:
  /// None is owned; all outlive this. `seed` is that of dropout.
  TrainingStep(const Parts& parts, ModelState& state, Threads& threads, std::uint64_t seed);

  /// The gradients of the samples that follow `consumed`, as many as the batch plan says, times the loss scale, and
  /// what to say of them. Changes no weight.
  StepOutcome backward(std::int64_t consumed);
  /// Let the optimizer use them, at the rates where the schedule stands; `number` counts updates from 1.
  void update(std::int64_t number, const StepOutcome& outcome);

  /// How many main gradients are exactly zero.
  std::int64_t zeros_in_gradients() const;
  /// L2 norm of all weights.
  double weight_norm() const;

  /// Mean loss over the tokens of `steps` whole steps of a split, beginning at sample `consumed`. No dropout, nothing
  /// is recorded. `progress` is told how many of the steps this process is done with.
  double evaluate(const Dataset& data, const Sampler& order, std::int64_t consumed, std::int64_t steps,
                  const std::function<void(std::int64_t steps)>& progress = {});

  /// Repeat the forward passes of the step that begins at `consumed` and name the first value that is not finite: a
  /// weight, what a layer gives, or a gradient.
  std::string first_not_finite(std::int64_t consumed);

  const Arena& arena() const { return pipeline_.arena(); }

 private:
  void sort_into_groups();
  double summed(double own) const;
  std::string not_finite_here(std::int64_t consumed);
  std::string not_finite_value(std::int64_t consumed);

  const Parts& parts_;
  ModelState& state_;
  Threads& threads_;
  std::uint64_t seed_;
  GradientSync sync_;
  Pipeline pipeline_;
  std::vector<ParameterGroup> groups_;  ///< each kind of treatment that occurs
  std::vector<std::size_t> group_of_;   ///< of each parameter, in the order of the layout
  std::vector<StepScalars> scalars_;    ///< of each group in this step
};

}  // namespace tessera
