#pragma once

#include <poll.h>

#include <string>
#include <vector>

#include "launch/tsrun/job.h"
#include "launch/tsrun/pending_connections.h"

namespace tessera::tsrun {

/// The hosts that wait for the ranks of a lost one, in the order of their coming. Each is a connection to the tsrun
/// there.
class Spares {
 public:
  struct Spare {
    Connection connection;
    HostInfo info;
  };

  /// It waits from now on, and is told so.
  void add(Connection connection, HostInfo info);
  /// The same of a host that comes while the job runs and has answered (PendingConnections::has_answered); refused if
  /// it does not belong to the job.
  void admit(const Job& job, PendingConnections& pending, PendingConnection& client, Reporter& reporter);
  void watch(std::vector<pollfd>& watched) const;
  /// Takes what they have sent. Who has ended, is silent for `longest_silence` seconds or was asked to stop is one no
  /// more; the job continues.
  void handle(Reporter& reporter, double longest_silence);
  /// How many ranks each has room for.
  std::vector<int> room() const;
  /// Those waiting no more: as many ranks as `ranks` says for each, in `info.workers`; 0: it stays.
  std::vector<Spare> take(const std::vector<int>& ranks);
  template <class Message>
  void tell_all(const Message& message) {
    for (auto& spare : all_) send(spare.connection, message);
  }
  std::vector<Spare>& all() { return all_; }

 private:
  std::vector<Spare> all_;
};

/// Ranks that the hosts of the job, and the spare ones, were started for.
int room_of(const Job& job, Spares& spares);

}  // namespace tessera::tsrun
