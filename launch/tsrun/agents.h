#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/host_list.h"

namespace tessera::tsrun {

/// Starts the tsrun of the hosts of --hosts and --spares through --agent.
class Agents {
 public:
  /// `words`: the command line of this tsrun, for those.
  Agents(const Job& job, LeaderSockets& sockets, Reporter& reporter, const std::vector<std::string>& words)
      : job_(job), sockets_(sockets), reporter_(reporter), words_(words) {}

  /// The process that holds it. Throws if nothing can be started.
  pid_t start(const ListedHost& host, int node_rank, bool spare);
  /// Such a host was lost.
  void lost(const ListedHost& host);
  /// To be called again and again: starts tsrun on the lost hosts, as spare ones. A host that is still away is tried
  /// again later.
  void call_lost();

 private:
  struct Away {
    ListedHost host;
    pid_t agent = 0;  ///< that tries to start it again
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
