#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// A host of --hosts or --hostfile, and how many workers it gets.
struct ListedHost {
  std::string name;
  int workers = 0;
};

/// What --hosts ("a:8,b:8") or --hostfile (lines "a slots=8", "a:8" or "a", # begins a comment) says; empty without
/// them. A host without a number gets `each`; 0: that is an error. Throws ConfigError for what cannot be read, a host
/// that is listed twice, and a sum that is not `total` (0: any).
std::vector<ListedHost> listed_hosts(const LaunchOptions& options, int each, int total);

/// What --spares says, as --hosts. Throws also for a host that `hosts` has.
std::vector<ListedHost> listed_spares(const LaunchOptions& options, int each, const std::vector<ListedHost>& hosts);

}  // namespace tessera::tsrun
