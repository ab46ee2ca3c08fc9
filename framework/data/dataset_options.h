#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/options/schema.h"

namespace tessera::data {

/// dataset_config, whatever the dataset: how many samples make a step and a run.
struct BatchOptions {
  std::int64_t batch_size = 1;                    ///< samples of one micro-batch
  std::optional<std::int64_t> micro_batch_num;    ///< micro-batches of one step
  std::optional<std::int64_t> global_batch_size;  ///< samples of one step, over all ranks
  std::optional<std::int64_t> train_samples;      ///< length of the run; null or 0: said in steps
  std::int64_t num_workers = 2;                   ///< threads that read micro-batches ahead; 0: the step reads itself
  std::int64_t bad_sample_limit = 0;              ///< samples that may be replaced; 0: the first bad one ends the run
  std::optional<std::string> quarantine_file;     ///< names samples that are replaced from the beginning

  bool in_samples() const { return train_samples.value_or(0) > 0; }
  /// Micro-batches of one step on each of `ranks` data parallel ranks: what the recipe says, or follows from
  /// global_batch_size, or 1. What does not divide was refused when the recipe was read.
  std::int64_t micro_batches(std::int64_t ranks = 1) const;
  /// Samples of one step. Throws ConfigError when they are too many to be counted.
  std::int64_t samples_per_step(std::int64_t ranks = 1) const;
};
void describe(options::Schema<BatchOptions>& s);

}  // namespace tessera::data
