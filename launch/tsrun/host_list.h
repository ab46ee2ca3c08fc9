#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/options.h"

namespace tessera::tsrun {

/// One host of --hosts, --hostfile or --spares, with its number of workers.
struct ListedHost {
  std::string name;  ///< as the agent (ssh) takes it: "a", "user@a", "10.0.0.1", "::1"
  int workers = 0;
  /// The name without the user.
  std::string host() const { return name.substr(name.rfind('@') + 1); }
};

/// Reads --hosts ("a:8,b:8", "[fd77::1]:8") or --hostfile. Returns an empty list if neither is given. A line of the
/// file is one of the forms of other launchers; # begins a comment:
///
///     a    a:8    user@a:8             MPICH, Intel MPI
///     a slots=8 max_slots=16           Open MPI, DeepSpeed, Horovod; also slots = 8, max-slots, cpu, count, user=NAME
///     a 8 QUEUE RANGE                  Grid Engine's $PE_HOSTFILE; what follows the number is not read
///     ::1 slots=8    [::1]:8           an IPv6 address; without brackets it has no :NUMBER
///
/// Lines of the same host add up. If no line has a number and a host has several lines (PBS, LSF), each line is one
/// worker. Otherwise a host without a number gets `each` workers; if `each` is 0, that is an error. Throws ConfigError
/// for text that cannot be read, for a host that --hosts lists twice, and if the sum of workers is not `total` (0: any
/// sum).
std::vector<ListedHost> listed_hosts(const LaunchOptions& options, int each, int total);

/// Reads --spares, in the format of --hosts. Throws ConfigError as listed_hosts() does, and for a host that is also in
/// `hosts`.
std::vector<ListedHost> listed_spares(const LaunchOptions& options, int each, const std::vector<ListedHost>& hosts);

}  // namespace tessera::tsrun
