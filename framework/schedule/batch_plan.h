#pragma once

#include "framework/schedule/schedule.h"

namespace tessera::schedule {

/// Options of dataset_config about batch size ramp-up.
struct BatchRampOptions {
  std::optional<std::vector<std::int64_t>> rampup_batch_size;  ///< {first size, increment, samples until full size}
  bool decrease_batch_size_if_needed = false;
};
/// Declares the options.
void describe(options::Schema<BatchRampOptions>& s);

/// The configured batch sizes, in samples.
struct BatchSizes {
  std::int64_t micro = 1;   ///< micro-batch size
  std::int64_t global = 1;  ///< global batch size after the ramp-up
  std::int64_t ranks = 1;   ///< data-parallel ranks
};

/// The batch size of one step.
struct StepSize {
  std::int64_t micro_batches = 0;  ///< per rank
  std::int64_t nominal = 0;        ///< scheduled global batch size, in samples
  std::int64_t samples = 0;        ///< actually read: less than nominal if that is not divisible into micro-batches
};

/// Violated rules between the sizes. Empty: none.
std::vector<options::Finding> broken_rules(const BatchRampOptions& options, const BatchSizes& sizes);

/// The batch size of every step: constant, or ramped up in equal increments. A pure function of the samples consumed.
/// Source: Megatron-LM, num_microbatches_calculator.
class BatchPlan {
 public:
  /// One sample per step.
  BatchPlan() : BatchPlan({}, {}) {}
  /// Throws ConfigError if a rule is violated.
  BatchPlan(const BatchRampOptions& options, const BatchSizes& sizes);

  /// The batch size of the step before which `consumed_samples` were consumed, even if it is not divisible into
  /// micro-batches; the remainder is then cut off.
  StepSize planned(std::int64_t consumed_samples) const;
  /// The same, for a step that is about to run. Throws ConfigError if it is not divisible into micro-batches of all
  /// ranks, unless decrease_batch_size_if_needed is set; and if it is smaller than one micro-batch per rank.
  StepSize at(std::int64_t consumed_samples) const;
  /// The first step within `samples` for which `at` throws, as the rule that is violated; nothing if there is none.
  std::optional<options::Finding> broken_step(std::int64_t samples) const;
  /// The full batch size, which evaluation uses.
  StepSize full() const { return size_of(sizes_.global); }

  /// Whether there is a ramp-up.
  bool grows() const { return ramp_samples_ > 0; }
  /// Number of steps in a run of `samples`, counted as in Megatron-LM; the last step of the ramp-up may exceed it.
  std::int64_t steps_of(std::int64_t samples) const;

 private:
  StepSize size_of(std::int64_t nominal) const;
  std::int64_t end_of_stride(std::int64_t size) const;
  std::optional<options::Finding> broken_rule(const StepSize& size, std::int64_t consumed) const;

  BatchSizes sizes_;
  bool decrease_;
  std::int64_t first_, increment_ = 0, ramp_samples_ = 0;
};

}  // namespace tessera::schedule
