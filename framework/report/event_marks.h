#pragma once

#include <vector>

#include "framework/report/chart.h"

namespace tessera::report {

/// The events of a run that its charts draw as vertical lines, at most `most`, in the order of events.jsonl. Notes and
/// completed saves have no line. If there are too many, failures come first, then other events of a start (beginning,
/// restart, return to a checkpoint, end), then the rest; of each the newest. An event that does not tell its iteration
/// is drawn where the next start began, or where the rows end if none follows; without either it has no line.
std::vector<ChartMark> event_marks(const runs::RunReader& run, std::size_t most);

}  // namespace tessera::report
