#pragma once

#include "framework/checkpoint/progress.h"
#include "framework/training/setup/training_setup.h"

namespace tessera::training {

/// Returns `progress` with the present schedule and, if it is dynamic, the present loss scale.
checkpoint::Progress with_rates(checkpoint::Progress progress, const TrainingSetup& setup);
/// Sets schedule and loss scale to what they are before the first step of a run, also in a run that has made steps. The
/// recipe's schedule, or that of a checkpoint, stays.
void begin_rates(TrainingSetup& setup);
/// Sets schedule and loss scale to those of `progress`. Checkpoints of the first version have neither; then the
/// schedule advances to their number of samples. Throws ConfigError if the schedule differs and no option says which
/// one is valid.
void restore_rates(const checkpoint::Progress& progress, TrainingSetup& setup);

}  // namespace tessera::training
