#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/host_list.h"

namespace tessera::tsrun {

/// Starts tsrun on the hosts of --hosts and --spares through the remote shell of --agent.
class Agents {
 public:
  /// `words`: the command line of this tsrun; the tsrun processes on the other hosts read their options from it. All
  /// four references must outlive this object.
  Agents(const Job& job, LeaderSockets& sockets, Reporter& reporter, const std::vector<std::string>& words)
      : job_(job), sockets_(sockets), reporter_(reporter), words_(words) {}
  /// Starts tsrun on `host` and returns the process id of the agent (for example ssh) that runs it; adds the id to
  /// LeaderSockets::agents. `node_rank`: the rank of the host, ignored for a spare host. Throws ConfigError if the
  /// agent program is not found, and Error if it cannot be started or takes no input.
  /// program is not found and Error if it cannot be started or takes no input.
  pid_t start(const ListedHost& host, int node_rank, bool spare);
  /// Records that `host` was lost, so that call_lost() starts tsrun there again.
  void lost(const ListedHost& host);
  /// Tries to start tsrun on every lost host again, as a spare host; at most one try in 10 s. Call it repeatedly while
  /// ranks are missing. Never throws: a host that cannot be reached is noted in scheduler.log and tried again later.
  void call_lost();

 private:
  struct Away {
    ListedHost host;
    pid_t agent = 0;  ///< the agent of the last try; 0: none
  };
  std::string orders(const ListedHost& host, int node_rank, bool spare) const;

  const Job& job_;
  LeaderSockets& sockets_;
  Reporter& reporter_;
  const std::vector<std::string>& words_;
  std::vector<Away> away_;
  double call_at_ = 0;
};

}  // namespace tessera::tsrun
