#pragma once

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// Lead or follow: one host, or the one that lists the others, leads. Of hosts where the same line was started, that
/// one leads which owns master_addr and can listen at master_port (several shells on one machine: the first that
/// comes, node_rank 0 before others); all others follow it. Returns the exit code.
int take_part(const LaunchOptions& options, const std::vector<std::string>& words);

}  // namespace tessera::tsrun
