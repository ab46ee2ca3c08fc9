#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/host_list.h"

namespace tessera {

/// The head's waiting for the other hosts, each of which comes as a connection from the tsrun there. Ends with all of
/// them in `job`, in the order of their ranks, and their connections beside them, or with everybody refused.
class Gathering {
 public:
  /// The head's own host is in `job.hosts` already when it has workers.
  Gathering(Job& job, HeadSockets& sockets, Voice& voice) : job_(job), sockets_(sockets), voice_(voice) {}

  /// Wait until `workers` are there. Throws ConfigError, after the others have been told, when something does not fit:
  /// all that does not, a line each; Error when hosts did not come in time.
  void wait_for(int workers);
  /// A host that we started ourselves: what it is called, how its agent's process is known.
  void expect(const ListedHost& host, pid_t agent) { expected_.push_back({host, agent}); }

 private:
  struct Guest {
    Connection connection;
    std::optional<HostInfo> info;
  };
  struct Expected {
    ListedHost host;
    pid_t agent;
    bool came = false, failed = false;
  };

  int present() const;
  bool nobody_else_comes() const;
  void turn();
  void hear(Guest& guest);
  void obey_signals();
  void check();
  void check_ranks();
  void check_against(const HostInfo& first, const HostInfo& other);
  void put_in_order();
  void check_reach();
  void rename_twins();
  [[noreturn]] void refuse();
  std::string missing() const;

  Job& job_;
  HeadSockets& sockets_;
  Voice& voice_;
  int workers_ = 0;
  std::list<Guest> guests_;
  std::vector<Expected> expected_;
  std::vector<std::string> wrong_;
};

}  // namespace tessera
