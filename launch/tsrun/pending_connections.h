#pragma once

#include <poll.h>

#include <list>
#include <optional>
#include <set>
#include <vector>

#include "launch/tsrun/handshake.h"
#include "launch/tsrun/job.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {

/// A connection to the leader that is not admitted yet. Until the handshake is complete, any program may be at its
/// other end.
struct PendingConnection {
  Connection connection;
  Challenge challenge;
  double since = now();          ///< when the connection was accepted
  std::optional<HostInfo> info;  ///< from the host's HostMessage; absent before it arrives
  std::string called, token;     ///< the host's name in --hosts; the token that the host must send back
};

/// The connections to the leader that are not admitted yet. Nothing that they send, or fail to send, stops the leader:
///
///   before the handshake is complete   5 s and 4 KiB per connection; at most 64 connections, further ones wait in the
///                                      system's queue
///   after it                           10 s for a line; 32 MiB of unfinished lines in total; at most `expected` + 128
///                                      connections; above a limit the oldest connections are closed
///
/// The reason for each closed connection is noted in scheduler.log (the first 100). A host with a wrong secret is also
/// reported on the screen.
class PendingConnections {
 public:
  /// `secrets`: what clients must prove. `expected`: number of connections that may come at once, one for each worker
  /// of the job. `reporter` must outlive this object.
  PendingConnections(Reporter& reporter, Secrets secrets, int expected)
      : reporter_(reporter), secrets_(std::move(secrets)), most_(static_cast<std::size_t>(expected) + 128) {}
  /// Accepts new connections, reads what all have sent, and continues the handshakes. Does not wait.
  void take(const Descriptor& listener);
  /// Closes connections that exceed a limit, and removes closed ones from all().
  void tidy();
  /// Handles the HostMessage of a host: asks the host to send a token back, or refuses it if it names another address
  /// than its connection has.
  void introduce(PendingConnection& client, HostMessage&& message);
  /// Returns whether the host has sent the token back, which shows that a tsrun answers and not a recorded line.
  /// Refuses the connection if not.
  bool has_answered(PendingConnection& client, const ListeningMessage& message);
  /// Closes a connection and notes the reason in scheduler.log.
  void refuse(PendingConnection& client, const std::string& why);
  /// Appends the connections to `watched`, and the listener if a new connection would be accepted.
  void watch(std::vector<pollfd>& watched, const Descriptor& listener) const;
  std::list<PendingConnection>& all() { return all_; }
  /// Addresses of the hosts that have come with a wrong secret.
  const std::set<std::string>& with_wrong_secret() const { return told_; }

 private:
  std::list<PendingConnection>::const_iterator longest_without_proof() const;
  bool has_room() const;
  bool make_room();
  void note(const PendingConnection& client, const std::string& why);
  void tell_wrong_secret(const PendingConnection& client);
  Reporter& reporter_;
  const Secrets secrets_;
  std::size_t most_;
  std::list<PendingConnection> all_;  ///< oldest first
  int noted_ = 0;
  std::set<std::string> told_;  ///< addresses returned by with_wrong_secret()
};

}  // namespace tessera::tsrun
