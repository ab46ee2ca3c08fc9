#pragma once

#include "framework/training/stop_signal.h"
#include "framework/training/training_setup.h"

namespace tessera {

/// How a run ended.
struct RunEnd {
  int exit_code = 0;
  std::string last_line;  ///< for the user: what came of it, and how to go on
};

/// Train from where the run folder stands until training_iters, exit_interval, exit_duration_in_mins or a request to
/// stop; then save. Claims the run folder for this process. Throws ConfigError for what the recipe or the folder has
/// wrong, Error with the first layer and tensor when a loss or gradient is not finite.
RunEnd train(TrainingSetup setup, const StopSignal& stop);

}  // namespace tessera
