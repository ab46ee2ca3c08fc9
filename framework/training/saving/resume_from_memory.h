#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/training/saving/resume.h"

// A run that continues from the memory that earlier processes of its job have left.

namespace tessera::training {

/// Sets the schedule and loss scaler of `setup` to `position`, which earlier processes left in memory. `step`: the step
/// on which the ranks have agreed. Throws ConfigError as restore_rates(), and if the run folder has a newer checkpoint.
/// Collective.
Restored restore_position(std::int64_t step, const RunPosition& position, TrainingSetup& setup);

/// Fills the frozen parameters, which that memory does not have: from the newest checkpoint that the job has saved or
/// began with; else from that in which they were (RunPosition::frozen); else from load_checkpoint, or with initial
/// weights. Returns notes. Throws ConfigError if none can be read, or if what was found are not the weights beside
/// which the state was trained. Collective.
std::vector<std::string> restore_frozen(const TrainingSetup& setup, ModelState& state, kernels::Threads& threads,
                                        const RunPosition& position, const RunFolder& folder);

/// For RunPosition::frozen, of a state that was restored from `from`. Collective.
std::optional<checkpoint::FrozenBase> source_of_frozen(const TrainingSetup& setup, ModelState& state,
                                                       kernels::Threads& threads, const Restored& from);

}  // namespace tessera::training
