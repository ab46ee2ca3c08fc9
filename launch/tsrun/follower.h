#pragma once

#include <functional>
#include <string>

#include "launch/tsrun/host.h"

namespace tessera::tsrun {

/// Returned by follow() if the leader closed the connection of a spare host without an answer: the leader is either
/// about to listen for workers or has ended. The caller connects again to find out.
inline constexpr int spare_was_dropped = -1;

/// Runs the tsrun of a host that does not lead: describes this host to the leader, starts MPI's daemon when the leader
/// asks for it, shows the logs of the workers here, and ends when the leader says so. Kills its child processes before
/// it returns. Returns the exit code of tsrun.
///
///   leader      an open connection on which the handshake has been done (handshake.h)
///   secret      the secret of the job
///   called      name of this host in --hosts or --spares, if the leader started this tsrun; else empty
///   node_rank   rank of this host, used only if `workers` > 0
///   workers     number of workers on this host; 0: as `options` say
int follow(const LaunchOptions& options, Connection leader, const std::string& secret, const std::string& called = "",
           int node_rank = -1, int workers = 0);

/// Implements `--as-agent HOST WORDS`, which mpirun calls as its remote shell: sends the command WORDS to the leader,
/// which has the tsrun on HOST run it. Returns when the leader closes the connection. Returns the exit code. Throws
/// Error if the leader cannot be reached.
int run_agent(const std::vector<std::string>& words);

/// Implements `--as-host ADDRESS:PORT`, which a leader with --hosts starts through --agent: reads an OrdersMessage from
/// standard input, connects to the leader at `leader` ("ADDRESS:PORT") and calls follow(). Returns the exit code.
/// Throws Error if the input is not such a message, ConfigError for wrong options.
int run_listed_host(const std::string& leader);

}  // namespace tessera::tsrun
