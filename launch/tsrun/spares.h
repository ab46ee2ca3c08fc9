#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/tsrun/job.h"
#include "launch/tsrun/pending_connections.h"

namespace tessera::tsrun {

/// The spare hosts, which wait for the ranks of a lost host, in the order in which they came. Each is a connection to
/// the tsrun on that host.
class Spares {
 public:
  struct Spare {
    Connection connection;
    HostInfo info;
  };

  /// Adds a spare host and tells it that it waits.
  void add(Connection connection, HostInfo info);
  /// Adds a spare host that comes while the job runs and has sent its token back (PendingConnections::has_answered).
  /// Refuses it if its description does not fit the job.
  void admit(const Job& job, PendingConnections& pending, PendingConnection& client, Reporter& reporter);
  /// Appends the connections to `watched`.
  void watch(std::vector<pollfd>& watched) const;
  /// Reads what the spare hosts have sent. Removes a host that has ended, has been silent for more than
  /// `longest_silence` seconds or was asked to stop; the job continues.
  void handle(Reporter& reporter, double longest_silence);
  /// Number of ranks for which each spare host has room; 0 if its connection is closed.
  std::vector<int> room() const;
  /// Removes and returns the spare hosts that get ranks: host i gets `ranks[i]`, which is stored in its `info.workers`;
  /// 0: it stays a spare host.
  std::vector<Spare> take(const std::vector<int>& ranks);
  template <class Message>
  void tell_all(const Message& message) {
    for (auto& spare : all_) send(spare.connection, message);
  }
  std::vector<Spare>& all() { return all_; }

 private:
  std::vector<Spare> all_;
};

/// Number of ranks for which the hosts of the job and the spare hosts have room.
int room_of(const Job& job, Spares& spares);

}  // namespace tessera::tsrun
