#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "framework/checkpoint/progress.h"
#include "framework/training/log_lines.h"
#include "framework/training/step.h"

namespace tessera::training {

/// The numbers of a RunPosition. A plain value.
struct PositionNumbers {
  bool stepped = false;            ///< the run has made a step since it began or was loaded
  bool evaluated = true;           ///< the evaluation that may be due after this step is done
  std::int64_t micro_batches = 0;  ///< of the last step; 0: there was none
  std::int64_t saved_at = -1;      ///< iteration of the newest checkpoint of the run; -1: there is none
  Interval interval;               ///< since the last line of progress
  double product_rate = 0;         ///< FLOP/s of the machine, measured when the run began
  /// Of a run that goes back to a checkpoint: to the newest one that is not after this iteration.
  std::int64_t back_to = std::numeric_limits<std::int64_t>::max();
};

/// Where a run is after a step, besides its tensors: with this a later process continues as if there had been one.
struct RunPosition : PositionNumbers {
  checkpoint::Progress progress;  ///< with schedule and loss scale
};

/// Maximum length of the text of a position.
inline constexpr std::size_t most_position_bytes = 16384;

/// A position as bytes, for a process of the same program. Throws BugError if it is too long.
std::string write_position(const RunPosition& position);
/// Reads it. Throws DamageError for what is no position.
RunPosition read_position(const std::string& bytes);

/// What is decided before the update of a step, the same on all ranks: the update and the report of the step follow
/// from it, in this process or in a later one. A plain value.
struct StepIntent {
  StepOutcome outcome;
  UpdateRates rates;
  double seconds = 0;     ///< since the step began
  bool skipped = false;   ///< an overflow of the loss scale was found: no weight changes
  bool rejected = false;  ///< the numbers are wrong: no weight changes, and the samples count as skipped
  bool changes_weights() const { return !skipped && !rejected; }
};

/// Bytes of the record of a step: its intent and what routers and prediction layers reported.
std::size_t record_bytes(nn::AuxiliaryLog& log);
/// Writes the record into `record`.
void write_record(const StepIntent& intent, nn::AuxiliaryLog& log, std::span<std::byte> record);
/// Reads it; `log` has the same extents.
StepIntent read_record(std::span<const std::byte> record, nn::AuxiliaryLog& log);

}  // namespace tessera::training
