#pragma once

#include <cstdint>
#include <optional>
#include <string>

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

/// How far a run is: all that a checkpoint of any format holds besides tensors and files.
struct Progress {
  std::int64_t iteration = 0;               ///< steps done
  std::int64_t updates = 0;                 ///< of these, steps that changed weights
  std::int64_t consumed_samples = 0;        ///< of the training split
  std::int64_t skipped_samples = 0;         ///< of these, passed over by iterations_to_skip
  std::int64_t consumed_valid_samples = 0;  ///< of the validation split; -1: not known
  std::int64_t data_start = 0;              ///< consumed_samples when the data began: not 0 after new_dataset
  std::uint64_t seed = 0;                   ///< of dropout
  std::string run = {};                     ///< id of the run; empty: not known, as in checkpoints of other programs
  std::optional<schedule::ScheduleState> schedule = {};  ///< nothing in checkpoints of the first version
  std::optional<LossScaleState> loss_scale = {};         ///< of a dynamic scale
};

/// The text of progress.json.
std::string write_progress(const Progress& progress);

/// Reads it. Keys that older checkpoints lack get the defaults above, `updates` the value of `iteration`. Throws
/// DamageError, beginning with `speaker`, for what is no such text.
Progress read_progress(const std::string& words, const std::string& speaker);

}  // namespace tessera::checkpoint
