#pragma once

#include "launch/tsrun/connection.h"
#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// The leading tsrun of a job: waits for the other hosts or starts them, starts the workers, watches them, starts
/// them again if it may, says why it ends. Returns the exit code.
///
///   words     the command line that `options` were read from, for the other hosts
///   secret    what the other hosts have to know; empty: nothing
///   listener  where they come, when it is open already
int lead(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret,
         Descriptor listener = Descriptor());

}  // namespace tessera::tsrun
