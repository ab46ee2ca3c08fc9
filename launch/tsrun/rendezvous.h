#pragma once

#include <list>
#include <string>
#include <vector>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/host_list.h"
#include "launch/tsrun/pending_connections.h"

namespace tessera::tsrun {

/// The leader's waiting for the other hosts, each of which comes as a connection from the tsrun there. A connection is
/// admitted as a host when it has introduced itself, from the address that it names, and has answered. Ends with all
/// hosts in `job`, in the order of their ranks, and their connections beside them, or with everybody refused. Spare
/// hosts that were started from here are waited for, too; others may come later.
class Rendezvous {
 public:
  /// For a job of so many workers. The leader's own host is in `job.hosts` already when it has workers.
  Rendezvous(Job& job, LeaderSockets& sockets, Reporter& reporter, int workers)
      : job_(job),
        sockets_(sockets),
        reporter_(reporter),
        workers_(workers),
        pending_(reporter, {job.secret, job.key}, workers) {}

  /// Wait until all workers' hosts are there. Throws ConfigError, after the others have been told, when something does
  /// not fit: all that does not, a line each; Error when hosts did not come in time.
  void wait();
  /// A host that we started ourselves: what it is called, how its agent's process is known.
  void expect(const ListedHost& host, pid_t agent, bool spare) { expected_.push_back({host, agent, spare}); }

 private:
  struct Admitted {
    Connection connection;
    HostInfo info;
    int port = 0;  ///< where it listens for the other hosts
  };
  struct Expected {
    ListedHost host;
    pid_t agent;
    bool spare;
    bool came = false, failed = false;
  };

  int present() const;
  bool all_listed_spares_came() const;
  bool nobody_else_comes() const;
  void poll_once();
  void handle(PendingConnection& client);
  void admit(PendingConnection& client, const ListeningMessage& message);
  void handle(Admitted& host);
  [[noreturn]] void stop(int signal);
  void handle_signals();
  void check();
  void check_ranks();
  void put_in_order();
  void part_with_spares();
  void check_reach();
  void rename_duplicates();
  [[noreturn]] void refuse();
  std::string missing() const;

  Job& job_;
  LeaderSockets& sockets_;
  Reporter& reporter_;
  const int workers_;
  PendingConnections pending_;
  std::list<Admitted> admitted_, spares_;
  std::vector<int> ports_;  ///< where the hosts of `job` listen for each other; 0: the leader's own
  std::vector<Expected> expected_;
  std::vector<std::string> wrong_;
};

}  // namespace tessera::tsrun
