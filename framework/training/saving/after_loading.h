#pragma once

#include "framework/checkpoint/format.h"
#include "framework/training/options/training_options.h"
#include "framework/training/state/model_state.h"
#include "framework/training/state/trained_names.h"

namespace tessera::training {

/// Keeps which checkpoint has the frozen parameters (FrozenWeights::origin), if `given` has them itself. The run's own
/// checkpoints are not kept: they are deleted or set aside in the course of the run.
void keep_origin(const checkpoint::OpenedCheckpoint& given, const TrainingOptions& options, ModelState& state);

/// Sets the optimizer state of elements to zero that are frozen although their parameter is trained: moments of steps
/// before they were frozen would still move them.
void clear_state_of_frozen(const TrainedNames& names, ModelState& state);

/// Unmaps and clears what was read of a checkpoint that turned out to be damaged.
void forget_what_was_read(ModelState& state);

}  // namespace tessera::training
