#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "framework/options/schema.h"

namespace tessera::data {

/// The options of dataset_config that do not depend on the dataset type: batch sizes and length of the run, in samples.
struct BatchOptions {
  std::int64_t batch_size = 1;                    ///< samples of one micro-batch
  std::optional<std::int64_t> micro_batch_num;    ///< micro-batches of one step
  std::optional<std::int64_t> global_batch_size;  ///< samples of one step, over all ranks
  /// Length of the run, in samples; null or 0: the length is given in steps.
  std::optional<std::int64_t> train_samples;
  std::int64_t num_workers = 2;  ///< threads that read micro-batches ahead; 0: the training thread reads them
  /// Maximum number of bad samples that are replaced; 0: the first bad sample ends the run.
  std::int64_t bad_sample_limit = 0;
  std::optional<std::string> quarantine_file;  ///< path of a file that lists samples to replace from the beginning

  /// Whether the length of the run is given in samples.
  bool in_samples() const { return train_samples.value_or(0) > 0; }
  /// Micro-batches of one step on each of `ranks` data-parallel ranks: `micro_batch_num`, else the number that follows
  /// from global_batch_size, else 1. Sizes that do not divide were rejected when the recipe was read.
  std::int64_t micro_batches(std::int64_t ranks = 1) const;
  /// Samples of one step on `ranks` data-parallel ranks. Throws ConfigError if the number does not fit into 64 bits.
  std::int64_t samples_per_step(std::int64_t ranks = 1) const;
};
/// Declares the options.
void describe(options::Schema<BatchOptions>& s);

}  // namespace tessera::data
