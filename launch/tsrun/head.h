#pragma once

#include "launch/tsrun/options.h"

namespace tessera {

/// The tsrun that leads the job: waits for the other hosts, starts the workers, watches them, starts them again if it
/// may, says why it ends. Returns the exit code.
int lead(const LaunchOptions& options);

}  // namespace tessera
