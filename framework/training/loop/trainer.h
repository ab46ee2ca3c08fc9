#pragma once

#include "framework/training/guards/stop_signal.h"
#include "framework/training/setup/training_setup.h"

namespace tessera::training {

/// How a run ended.
struct RunEnd {
  int exit_code = 0;
  std::string last_line;  ///< text for the user: the result, and how to resume
};

/// Trains from the newest checkpoint of the run folder, or from the beginning, until training_iters, exit_interval,
/// exit_duration_in_mins or a request to stop; then saves a checkpoint. Locks the run folder for this process.
/// Collective over the ranks of the run. Throws ConfigError for mistakes in the recipe or the run folder, and Error
/// that names the first layer and tensor if a loss or gradient is not finite.
RunEnd train(TrainingSetup setup, const StopSignal& stop);

}  // namespace tessera::training
