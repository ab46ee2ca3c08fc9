#pragma once

#include "framework/schedule/schedule.h"

namespace tessera {

/// A global batch that grows; in dataset_config beside the batch sizes.
struct BatchRampOptions {
  std::optional<std::vector<std::int64_t>> rampup_batch_size;  ///< first size, increment, samples until the full size
  bool decrease_batch_size_if_needed = false;
};
void describe(Schema<BatchRampOptions>& s);

/// Samples of a step.
struct BatchSizes {
  std::int64_t micro = 1;   ///< samples of a micro batch
  std::int64_t global = 1;  ///< samples of a step over all ranks, when it is fully grown
  std::int64_t ranks = 1;   ///< data parallel ranks
};

/// How big one step is.
struct StepSize {
  std::int64_t micro_batches = 0;  ///< on each rank
  std::int64_t nominal = 0;        ///< global batch that is due
  std::int64_t samples = 0;        ///< that are read: less than nominal where micro batches do not divide that
};

/// Rules between the sizes. Empty: all hold.
std::vector<BrokenRule> broken_rules(const BatchRampOptions& options, const BatchSizes& sizes);

/// The size of every step: the same throughout, or growing in equal strides with the samples consumed. A pure function
/// of these. Source: Megatron-LM, num_microbatches_calculator.
class BatchPlan {
 public:
  /// One sample a step.
  BatchPlan() : BatchPlan({}, {}) {}
  /// Throws ConfigError when a rule is broken.
  BatchPlan(const BatchRampOptions& options, const BatchSizes& sizes);

  /// Of the step before which `consumed_samples` were consumed, whether it can be made or not: what does not divide
  /// is cut off.
  StepSize planned(std::int64_t consumed_samples) const;
  /// The same, for a step that is about to be made. Throws ConfigError when micro batches of all ranks do not divide
  /// it, unless decrease_batch_size_if_needed.
  StepSize at(std::int64_t consumed_samples) const;
  /// Of the fully grown batch: what evaluation uses.
  StepSize full() const { return size_of(sizes_.global); }

  bool grows() const { return ramp_samples_ > 0; }
  /// Steps that `samples` are enough for, as Megatron-LM counts them; the last of the ramp may go beyond.
  std::int64_t steps_of(std::int64_t samples) const;

 private:
  StepSize size_of(std::int64_t nominal) const;

  BatchSizes sizes_;
  bool decrease_;
  std::int64_t first_, increment_ = 0, ramp_samples_ = 0;
};

}  // namespace tessera
