#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "framework/reporting/wandb.h"

namespace tessera::reporting {

// The metrics of a run, read from its metrics.jsonl, in the formats of other programs. The file may be of a run that is
// still going on: what is whole by then is exported. It has no times of day; a row gets one from the time of the file's
// last change and the seconds of the steps, without the time of evaluations and saves.

/// What was read.
struct Exported {
  std::int64_t rows = 0;     ///< lines of metrics.jsonl
  std::int64_t damaged = 0;  ///< lines that were left out because they are not whole
};

/// A table with a row for each line and a column for each key, in the order in which they came; numbers as they stand
/// in the file, nothing where a row has no such value or null. Lists stand in one cell. Throws IoError.
Exported export_csv(const std::string& metrics, std::ostream& to);

/// The newest value of each key, in Prometheus's text format, to the file `to`; `run`: the label. Throws IoError.
Exported export_prometheus(const std::string& metrics, const std::string& run, const std::string& to);

/// An event file in `folder`, with the tags that a run writes where metrics.jsonl has the same value ("lm loss",
/// "grad-norm", "lm loss validation", ...), else with the keys of metrics.jsonl; lists as "KEY_layer_I". Throws
/// ConfigError if the folder has event files with points already, which would be drawn over these; IoError.
Exported export_tensorboard(const std::string& metrics, const std::string& folder);

/// An offline run of Weights & Biases below `folder`; `place` becomes its folder, for `wandb sync`. Throws IoError.
Exported export_wandb(const std::string& metrics, const WandbRun& run, const std::string& folder, std::string& place);

}  // namespace tessera::reporting
