#pragma once

#include "launch/tsrun/connection.h"
#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// Runs the leading tsrun of a job: waits for the other hosts or starts them, starts and monitors the workers, restarts
/// them if allowed, and reports why the job ended. Returns the exit code of tsrun. Throws ConfigError if the hosts or
/// options do not fit together, and Error if hosts are missing after --cluster_time_out.
///
///   words     the command line from which `options` were read; sent to the hosts that the leader starts
///   secret    the secret that other hosts must know; empty: none
///   listener  the socket to which other hosts connect; not open: lead() opens one
int lead(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret,
         Descriptor listener = Descriptor());

}  // namespace tessera::tsrun
