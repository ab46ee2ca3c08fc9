#pragma once

#include <functional>
#include <string>

#include "launch/tsrun/host.h"

namespace tessera::tsrun {

/// Returned by follow() if the leader closed the connection of a spare host before it had answered: it begins to
/// listen to workers, or has ended. Another try tells.
inline constexpr int spare_was_dropped = -1;

/// The tsrun of a host that does not lead: brings its host's facts to the leader, starts what MPI wants to be started
/// here, shows its workers' logs, and ends as the leader says. Children die with it. Returns the exit code.
///
/// `leader`: it knows `secret`, as we do (handshake.h). `called`: the name by which the leader started us, if it did;
/// then `node_rank` and `workers` (0: as in `options`) are what it asks for.
int follow(const LaunchOptions& options, Connection leader, const std::string& secret, const std::string& called = "",
           int node_rank = -1, int workers = 0);

/// What `--as-agent HOST WORDS` does, which mpirun uses as its remote shell: hands the words to the leader, which has
/// the tsrun on that host run them.
int run_agent(const std::vector<std::string>& words);

/// What `--as-host ADDRESS:PORT` does, which --hosts starts through the agent: reads the rest from stdin, and follows.
int run_listed_host(const std::string& leader);

}  // namespace tessera::tsrun
