#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "framework/schedule/optimizer_schedule.h"

// progress.json, the blob of a checkpoint that says how far its run is; its keys: docs/checkpoints.md.

namespace tessera::checkpoint {

inline constexpr const char* progress_blob = "progress.json";

/// What a checkpoint keeps of a loss scaler; Megatron-LM's names.
struct LossScaleState {
  float scale = 1;
  std::int64_t growth_tracker = 0;
  std::int64_t hysteresis_tracker = 0;
};

/// Iterations of a run, counted from 0 as iterations_to_skip counts them: disjoint ranges [begin, end), ascending.
class IterationSet {
 public:
  using Range = std::array<std::int64_t, 2>;
  static constexpr std::size_t most_ranges = 200;  ///< more have no room in the position of a run in memory
  void add(std::int64_t begin, std::int64_t end);
  bool contains(std::int64_t iteration) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const IterationSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

/// What a run has found out about its steps so far, by which their numbers are judged.
struct NumberHistory {
  double largest_loss = 0, largest_grad_norm = 0;  ///< of the good steps
  std::int64_t good_steps = 0;
  std::int64_t last_good = -1;  ///< the last good step, counted from 0
  std::int64_t bad_in_row = 0;  ///< steps after it whose numbers were rejected
};

/// What a run has found out about its data; it keeps this when it goes back to a checkpoint.
struct Findings {
  IterationSet skip;                ///< iterations that are skipped besides iterations_to_skip
  std::int64_t roll_back_end = -1;  ///< the last iteration that the newest roll-back skipped; -1: there was none
  bool operator==(const Findings&) const = default;
};

/// How far a run is: all that a checkpoint of any format holds besides tensors and files.
struct Progress {
  std::int64_t iteration = 0;               ///< steps done
  std::int64_t updates = 0;                 ///< of these, steps that changed weights
  std::int64_t consumed_samples = 0;        ///< of the training split
  std::int64_t skipped_samples = 0;         ///< of these, of iterations that were skipped for their data
  std::int64_t consumed_valid_samples = 0;  ///< of the validation split; -1: not known
  std::int64_t data_start = 0;              ///< consumed_samples when the data began: not 0 after new_dataset
  std::uint64_t seed = 0;                   ///< of dropout
  std::uint32_t sample_chain = 0;           ///< checksum of the samples of all steps, see docs/metrics.md
  std::map<std::string, std::vector<std::int64_t>> quarantine = {};  ///< samples found to be bad, by split
  std::string run = {};  ///< id of the run; empty: not known, as in checkpoints of other programs
  std::optional<schedule::ScheduleState> schedule = {};  ///< nothing in checkpoints of the first version
  std::optional<LossScaleState> loss_scale = {};         ///< of a dynamic scale
  NumberHistory numbers = {};
  Findings findings = {};
};

/// The text of progress.json.
std::string write_progress(const Progress& progress);

/// Reads it. Keys that older checkpoints lack get the defaults above, `updates` the value of `iteration`. Throws
/// DamageError, beginning with `speaker`, for what is no such text.
Progress read_progress(const std::string& words, const std::string& speaker);

}  // namespace tessera::checkpoint
