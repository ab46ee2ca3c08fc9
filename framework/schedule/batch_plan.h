#pragma once

#include <functional>

#include "framework/schedule/schedule.h"

namespace tessera::schedule {

/// Options of dataset_config about batch size ramp-up.
struct BatchRampOptions {
  /// {first global batch size, increment, number of samples after which the full size is reached}; absent: no ramp-up.
  std::optional<std::vector<std::int64_t>> rampup_batch_size;
  bool decrease_batch_size_if_needed = false;  ///< use fewer samples if a size is not divisible into micro-batches
};
/// Declares the options.
void describe(options::Schema<BatchRampOptions>& s);

/// The configured batch sizes, in samples.
struct BatchSizes {
  std::int64_t micro = 1;   ///< micro-batch size
  std::int64_t global = 1;  ///< global batch size after the ramp-up
  std::int64_t ranks = 1;   ///< number of data-parallel ranks
};

/// The batch size of one step.
struct StepSize {
  std::int64_t micro_batches = 0;  ///< number of micro-batches per rank
  std::int64_t nominal = 0;        ///< scheduled global batch size, in samples
  std::int64_t samples = 0;        ///< samples used; below `nominal` if decrease_batch_size_if_needed rounded it down
};

/// The rules between the batch sizes that are violated; empty: none.
std::vector<options::Finding> broken_rules(const BatchRampOptions& options, const BatchSizes& sizes);

/// The batch size of every step: constant, or ramped up in equal increments. A pure function of the samples consumed.
/// Source: Megatron-LM, num_microbatches_calculator.
class BatchPlan {
 public:
  /// A constant batch size of one sample.
  BatchPlan() : BatchPlan({}, {}) {}
  /// Throws ConfigError if a rule is violated.
  BatchPlan(const BatchRampOptions& options, const BatchSizes& sizes);

  /// The batch size of the step that begins when `consumed_samples` samples have been consumed. Does not check it: if
  /// it is not divisible into micro-batches of all ranks, `micro_batches` is rounded down.
  StepSize planned(std::int64_t consumed_samples) const;
  /// As planned, for a step that is about to run. Throws ConfigError if the size is smaller than one micro-batch per
  /// rank, or, unless decrease_batch_size_if_needed is set, is not divisible into micro-batches of all ranks.
  StepSize at(std::int64_t consumed_samples) const;
  /// Calls visit(size, consumed samples) for the first step of each size in a run of `samples` samples, in order (of a
  /// size perhaps for another step, too), until it returns false.
  void each_size(std::int64_t samples, const std::function<bool(const StepSize&, std::int64_t consumed)>& visit) const;
  /// Searches a run of `samples` samples for a step for which `at` throws. Returns the violated rule of the first such
  /// step; nullopt: every step is valid.
  std::optional<options::Finding> broken_step(std::int64_t samples) const;
  /// The batch size after the ramp-up, which evaluation uses too.
  StepSize full() const { return size_of(sizes_.global); }

  /// Whether there is a ramp-up.
  bool grows() const { return ramp_samples_ > 0; }
  /// Number of steps in a run of `samples` samples, as Megatron-LM counts them: a last incomplete step is not counted,
  /// except during the ramp-up, whose last step may exceed `samples`.
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
