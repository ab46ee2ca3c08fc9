#pragma once

#include <filesystem>
#include <string>

#include "framework/training/resume.h"

// progress.json, the blob of a checkpoint that says how far its run is; its keys: docs/checkpoints.md.

namespace tessera {

inline constexpr const char* progress_blob = "progress.json";

/// The blob of a checkpoint saved now: `progress`, the schedule and, if dynamic, the loss scale of `setup`.
std::string write_progress(const Progress& progress, const TrainingSetup& setup);

/// Reads it and, unless no_load_optim, sets the schedule and the loss scale of `setup` to what was saved. `folder`, the
/// checkpoint's, is named in errors. Throws DamageError if it is not readable, ConfigError if the schedules differ.
Progress read_progress(const std::string& words, const std::filesystem::path& folder, TrainingSetup& setup);

}  // namespace tessera
