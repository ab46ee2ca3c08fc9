#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// One host of --hosts, --hostfile or --spares, with its number of workers.
struct ListedHost {
  std::string name;
  int workers = 0;
};

/// Reads --hosts ("a:8,b:8") or --hostfile (lines "a slots=8", "a:8" or "a"; # begins a comment). Returns an empty list
/// if neither is given. A host without a number gets `each` workers; if `each` is 0, that is an error. Throws
/// ConfigError for text that cannot be read, for a host that is listed twice, and if the sum of workers is not `total`
/// (0: any sum).
std::vector<ListedHost> listed_hosts(const LaunchOptions& options, int each, int total);

/// Reads --spares, in the format of --hosts. Throws ConfigError as listed_hosts() does, and for a host that is also in
/// `hosts`.
std::vector<ListedHost> listed_spares(const LaunchOptions& options, int each, const std::vector<ListedHost>& hosts);

}  // namespace tessera::tsrun
