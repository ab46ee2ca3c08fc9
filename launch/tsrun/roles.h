#pragma once

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// Decides whether this tsrun leads or follows, and does it; returns the exit code. It leads if all workers are on one
/// host or if it lists the hosts (--hosts, --hostfile). If the same command was started on several hosts, that one
/// leads which owns master_addr and can listen at master_port (of several shells on one machine the first, node_rank 0
/// before others). Throws ConfigError or Error, for example if no leader answers. `words`: the command line of
/// `options`.
int take_part(const LaunchOptions& options, const std::vector<std::string>& words);

}  // namespace tessera::tsrun
