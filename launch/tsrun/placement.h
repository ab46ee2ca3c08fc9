#pragma once

#include <string>
#include <vector>

#include "launch/tsrun/agents.h"
#include "launch/tsrun/attempt.h"

namespace tessera::tsrun {

/// Assigns ranks to hosts when hosts are lost and come back. Keeps Job::hosts, LeaderSockets::hosts and the spare hosts
/// consistent. Use it only between two starts of the workers. All references must outlive this object.
class Placement {
 public:
  Placement(Job& job, LeaderSockets& sockets, Agents& agents, Reporter& reporter)
      : job_(job), sockets_(sockets), agents_(agents), reporter_(reporter) {}

  /// Tells the host with index `host` in Job::hosts its ranks.
  void welcome(std::size_t host);
  /// Gives the ranks of the hosts in `outcome.lost_hosts` to spare hosts, or to the other hosts if no spare host has
  /// room. Adds to `outcome.words` where the ranks run now, and clears `outcome.host_lost`. If no other host is left,
  /// `outcome.host_lost` stays set.
  void leave_lost_hosts(Outcome& outcome, JobFolders& folders);
  /// Number of ranks for which the job's hosts and the spare hosts have room.
  int room() const;
  /// Implements --after_host_loss shrink: returns the number of workers with which the job continues because the
  /// remaining hosts lack room for all, or 0 if it continues with all workers. `possible`: Outcome::possible.
  int fewer_workers(const std::vector<int>& possible);
  /// Lets the job resume from its checkpoint with `workers` workers, on its hosts and as many spare hosts as needed;
  /// hosts without ranks become spare hosts. Deletes the state in memory, which belongs to another number of workers.
  void regroup(int workers, JobFolders& folders);
  /// Text for the screen: "8 workers on a (eth0 10.0.0.1), b (eth0 10.0.0.2); logs in ...".
  std::string words() const;

 private:
  void tell_left_out(Connection& host) const;
  std::string replace_by_spares(std::size_t host, int ranks);
  void tell_places(JobFolders& folders, bool forget);

  Job& job_;
  LeaderSockets& sockets_;
  Agents& agents_;
  Reporter& reporter_;
};

}  // namespace tessera::tsrun
