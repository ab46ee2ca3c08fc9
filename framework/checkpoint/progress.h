#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/schedule/optimizer_schedule.h"

// progress.json, the checkpoint blob with the progress of the run. docs/checkpoints.md describes its keys.

namespace tessera::checkpoint {

inline constexpr const char* progress_blob = "progress.json";

/// The saved state of the dynamic loss scaler, with Megatron-LM's names (DynamicGradScaler).
struct LossScaleState {
  float scale = 1;
  std::int64_t growth_tracker = 0;
  std::int64_t hysteresis_tracker = 0;
};

/// A set of iterations of a run, counted from 0 as in iterations_to_skip: disjoint ranges [begin, end), ascending.
class IterationSet {
 public:
  using Range = std::array<std::int64_t, 2>;
  /// The record of a run's position in shared memory has room for this many.
  static constexpr std::size_t most_ranges = 200;
  /// Adds the iterations [begin, end).
  void add(std::int64_t begin, std::int64_t end);
  bool contains(std::int64_t iteration) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const IterationSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// Statistics of the steps so far, used to judge the loss and gradient norm of later steps.
struct NumberHistory {
  double largest_loss = 0, largest_grad_norm = 0;  ///< over all good steps
  std::int64_t good_steps = 0;
  std::int64_t last_good = -1;  ///< the last good step, counted from 0
  std::int64_t bad_in_row = 0;  ///< steps after it whose loss or gradient norm was rejected
};

/// What a run has detected about its data. It is kept when the run rolls back to an earlier checkpoint.
struct Findings {
  IterationSet skip;                ///< iterations to skip in addition to iterations_to_skip
  std::int64_t roll_back_end = -1;  ///< last iteration skipped by the newest roll-back; -1: there was no roll-back
  bool operator==(const Findings&) const = default;
};

/// The progress of a run: everything in a checkpoint of any format besides tensors and files.
struct Progress {
  std::int64_t iteration = 0;               ///< completed steps
  std::int64_t updates = 0;                 ///< completed steps that changed weights
  std::int64_t consumed_samples = 0;        ///< samples of the training split
  std::int64_t skipped_samples = 0;         ///< of consumed_samples, those in iterations skipped because of their data
  std::int64_t consumed_valid_samples = 0;  ///< samples of the validation split; -1: unknown
  std::int64_t data_start = 0;  ///< consumed_samples at the first sample of this dataset; not 0 after new_dataset
  std::int64_t global_batch_size = 0;  ///< samples of a step after the ramp-up; 0: unknown
  std::int64_t order_stride = 0;       ///< data::Sampler::stride() of the training samples; 0: none, or unknown
  std::uint64_t seed = 0;              ///< seed of dropout
  bool has_seed = true;                ///< false: the checkpoint was saved without it
  std::uint32_t sample_chain = 0;      ///< checksum of the samples of all steps, see docs/metrics.md
  std::map<std::string, std::vector<std::int64_t>> quarantine = {};  ///< indices of bad samples, by split
  std::string run = {};  ///< id of the run; empty: unknown, as in checkpoints of other programs
  std::optional<schedule::ScheduleState> schedule = {};  ///< nothing in checkpoints of the first format version
  std::optional<LossScaleState> loss_scale = {};         ///< only with dynamic loss scaling
  NumberHistory numbers = {};
  Findings findings = {};
};

/// The text of progress.json.
std::string write_progress(const Progress& progress);

/// Parses progress.json. Keys that are missing in older checkpoints get the defaults above, and `updates` the value of
/// `iteration`. Throws DamageError, beginning with `speaker`, if the text is invalid.
Progress read_progress(const std::string& words, const std::string& speaker);

}  // namespace tessera::checkpoint
