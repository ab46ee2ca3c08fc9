#pragma once

#include <list>
#include <string>
#include <vector>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/host_list.h"
#include "launch/tsrun/pending_connections.h"

namespace tessera::tsrun {

/// Lets the leader wait for the other hosts. The tsrun on each host connects and is admitted after it has introduced
/// itself, its connection comes from the address that it names, and it has sent the token back. When wait() returns,
/// all hosts are in `job` in the order of their ranks, with their connections in `sockets`. Spare hosts that the leader
/// started itself are waited for, too; other spare hosts may connect later.
class Rendezvous {
 public:
  /// `workers`: number of workers of the job. `job.hosts` already contains the leader's own host if workers run on it.
  /// All references must outlive this object.
  Rendezvous(Job& job, LeaderSockets& sockets, Reporter& reporter, int workers)
      : job_(job),
        sockets_(sockets),
        reporter_(reporter),
        workers_(workers),
        pending_(reporter, {job.secret, job.key}, workers) {}

  /// Waits until the hosts of all workers have connected. If something is wrong, it tells the hosts and throws:
  /// ConfigError that lists all mistakes, one per line; Error if hosts are missing after --cluster_time_out or a
  /// signal asks to stop.
  void wait();
  /// Announces a host that the leader started itself. `agent`: process id of its agent (Agents::start).
  void expect(const ListedHost& host, pid_t agent, bool spare) { expected_.push_back({host, agent, spare}); }

 private:
  struct Admitted {
    Connection connection;
    HostInfo info;
    int port = 0;  ///< port at which the host listens for other hosts
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
  std::vector<int>
      ports_;  ///< ports at which the hosts in `job_.hosts` listen for each other; 0: the leader's own host
  std::vector<Expected> expected_;
  /// All mistakes found so far, one text each.
  std::vector<std::string> wrong_;
};

}  // namespace tessera::tsrun
