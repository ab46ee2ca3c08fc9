#pragma once

#include <optional>
#include <string>

#include "framework/runs/run_reader.h"

namespace tessera::watch {

/// The state of a run as a sentence: "running", "died: <root cause>", "silent for 10 min". Not safe to print.
std::string state_words(const runs::RunStatus& status, double now);

/// "resumed at iteration 8 after 12", if the newest start of the run repeats steps or the run went back; else empty.
std::string went_back_words(const runs::RunReader& run);

/// Expected seconds until the last iteration, by the recent steps; nothing if it is not known.
std::optional<double> seconds_left(const runs::RunReader& run);

/// An event as one line: "iteration 8  saved  checkpoints/iter_8", without the iteration if it is not told. Not safe to
/// print.
std::string event_words(const runs::RunEvent& event);

/// The letter that stands for the run with this number: A, B, ..., Z, ?.
std::string run_mark(std::size_t run);

}  // namespace tessera::watch
