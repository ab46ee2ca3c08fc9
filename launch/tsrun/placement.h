#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/agents.h"
#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {

/// Which ranks each host of a running job has, when hosts are lost and come back. Changes Job::hosts, the connections
/// beside them and the spare hosts together, between two starts of the workers.
class Placement {
 public:
  Placement(Job& job, LeaderSockets& sockets, Agents& agents, Reporter& reporter)
      : job_(job), sockets_(sockets), agents_(agents), reporter_(reporter) {}

  /// A host has ranks from now on.
  void welcome(std::size_t host);
  /// The ranks of hosts that are lost go to spare hosts, else to the other hosts, if there are any. `outcome` then
  /// tells it.
  void leave_lost_hosts(Outcome& outcome, JobFolders& folders);
  /// Ranks that the hosts with ranks, and the spare ones, were started for.
  int room() const;
  /// --after_host_loss shrink: with how many workers the job continues, since the hosts that are left have no room for
  /// all; 0: with all of them. `possible`: Outcome::possible.
  int fewer_workers(const std::vector<int>& possible);
  /// From its checkpoint the job continues with so many workers, on its hosts and on as many spare ones as that needs.
  /// What is in memory is of another number of workers, and deleted.
  void regroup(int workers, JobFolders& folders);
  /// "8 workers on a (eth0 10.0.0.1), b (eth0 10.0.0.2)".
  std::string words() const;

 private:
  std::string replace_by_spares(std::size_t host, int ranks);
  void tell_places(JobFolders& folders, bool forget);

  Job& job_;
  LeaderSockets& sockets_;
  Agents& agents_;
  Reporter& reporter_;
};

}  // namespace tessera::tsrun
