#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "framework/checkpoint/frozen_base.h"
#include "framework/checkpoint/progress.h"
#include "framework/reporting/log_lines.h"
#include "framework/training/step/step.h"

namespace tessera::training {

/// The numbers of a RunPosition: a plain value, stored bytewise.
struct PositionNumbers {
  bool stepped = false;            ///< the run has made a step since it began or was loaded
  bool evaluated = true;           ///< the evaluation that may be due after this step is done
  std::int64_t micro_batches = 0;  ///< micro-batches of the last step; 0: there was no step
  std::int64_t saved_at = -1;      ///< iteration of the run's newest checkpoint; -1: none
  reporting::Interval interval;    ///< what happened since the last progress line
  double product_rate = 0;         ///< FLOP/s of all ranks' machines, measured when the run began
  /// For a run that returns to a checkpoint: it returns to the newest one of this iteration or earlier.
  std::int64_t back_to = std::numeric_limits<std::int64_t>::max();
};

/// State of a run after a step, besides its tensors: a later process continues from it as if it were the same process.
struct RunPosition : PositionNumbers {
  checkpoint::Progress progress;  ///< includes schedule and loss scale
  /// The checkpoint from which the frozen parameters were read when the run began, and their digest; nothing: they were
  /// drawn or all are trained, or an older version wrote the position.
  std::optional<checkpoint::FrozenBase> frozen = {};
};

/// Maximum size of a stored position, in bytes.
inline constexpr std::size_t most_position_bytes = 16384;

/// Encodes a position for a process of the same program. Throws BugError if it is too long without RunPosition::frozen,
/// which is left out if there is no room for it.
std::string write_position(const RunPosition& position);
/// Decodes a position. Throws checkpoint::DamageError if `bytes` is not a position.
RunPosition read_position(const std::string& bytes);

/// What is decided before the update of a step, equal on all ranks: it determines the update and the report of the
/// step, in this process or a later one. A plain value.
struct StepIntent {
  StepOutcome outcome;
  UpdateRates rates;
  double seconds = 0;     ///< time since the step began
  bool skipped = false;   ///< the gradients overflowed (loss scale): no weight changes
  bool rejected = false;  ///< the numbers are wrong: no weight changes, and the samples count as skipped
  bool changes_weights() const { return !skipped && !rejected; }
};

/// Size in bytes of the record of a step: its intent, and what routers and prediction layers reported.
std::size_t record_bytes(nn::AuxiliaryLog& log);
/// Writes the record into `record`, which has record_bytes() bytes (else BugError).
void write_record(const StepIntent& intent, nn::AuxiliaryLog& log, std::span<std::byte> record);
/// Reads a record; `log`, with the same extents, gets the reports. Throws BugError for another size.
StepIntent read_record(std::span<const std::byte> record, nn::AuxiliaryLog& log);

}  // namespace tessera::training
