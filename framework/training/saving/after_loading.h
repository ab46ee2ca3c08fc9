#pragma once

#include "framework/checkpoint/format.h"
#include "framework/training/options/training_options.h"
#include "framework/training/state/model_state.h"

namespace tessera::training {

/// Keeps which checkpoint has the frozen parameters (FrozenWeights::origin), if `given` has them itself. The run's own
/// checkpoints are not kept: they are deleted or set aside in the course of the run.
void keep_origin(const checkpoint::OpenedCheckpoint& given, const TrainingOptions& options, ModelState& state);

/// Unmaps and clears what was read of a checkpoint that turned out to be damaged.
void forget_what_was_read(ModelState& state);

}  // namespace tessera::training
