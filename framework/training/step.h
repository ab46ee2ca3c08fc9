#pragma once

#include <string>

#include "framework/tensor/arena.h"
#include "framework/training/model_state.h"
#include "framework/training/parts.h"

namespace tessera {

/// What a step found.
struct StepOutcome {
  double loss = 0;       ///< sum over the tokens of all micro batches by their number, as Megatron-LM reports it
  double grad_norm = 0;  ///< of all main gradients together, before clipping
  double data_wait_seconds = 0;
  bool finite() const;
};

/// One training step in its phases: backward (all micro batches), reduce, commit, update. Owns the memory that a
/// step works in; in steady state it takes nothing from the heap.
class TrainingStep {
 public:
  /// None is owned; all outlive this. `seed` is that of dropout.
  TrainingStep(const Parts& parts, ModelState& state, Threads& threads, std::uint64_t seed);

  /// The gradients of the samples that follow `consumed`, and what to say of them. Changes no weight.
  StepOutcome backward(std::int64_t consumed);
  /// Let the optimizer use them: step number `step`, from 1.
  void update(std::int64_t step, std::int64_t consumed, const StepOutcome& outcome);

  /// Mean loss over the tokens of `steps` whole steps of a split, beginning at sample `consumed`. No dropout, nothing
  /// is recorded.
  double evaluate(const Dataset& data, const Sampler& order, std::int64_t consumed, std::int64_t steps);

  /// Repeat the forward passes of the step that begins at `consumed` and name the first value that is not finite: a
  /// weight, what a layer gives, or a gradient.
  std::string first_not_finite(std::int64_t consumed);

  const Arena& arena() const { return arena_; }

 private:
  TokenBatch read(const Dataset& data, const Sampler& order, std::int64_t consumed);

  const Parts& parts_;
  ModelState& state_;
  Threads& threads_;
  std::uint64_t seed_;
  Arena arena_;
  Tape recording_, looking_;
  Batch batch_;
};

}  // namespace tessera
