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

/// A connection that is not admitted yet. Until the challenge is answered anybody may be at its other end.
struct PendingConnection {
  Connection connection;
  Challenge challenge;
  double since = now();          ///< when it came
  std::optional<HostInfo> info;  ///< of a host that has introduced itself
  std::string called, token;     ///< its name in --hosts; what it has to repeat
};

/// The connections to the leader that are not admitted. Whatever they send or do not send, the leader continues. A
/// connection has 5 s and 4 KiB to prove that it knows the secret of its role; at most 64 that have not are kept, the
/// others wait in the system's queue. Of those that have, lines have to end, and when there are too many the oldest are
/// closed. Every connection that is closed has a line in scheduler.log; a host with a wrong secret is also told on the
/// screen.
class PendingConnections {
 public:
  /// `expected`: how many may come at once, all workers of the job; so many and 128 more are kept.
  PendingConnections(Reporter& reporter, Secrets secrets, int expected)
      : reporter_(reporter), secrets_(std::move(secrets)), most_(static_cast<std::size_t>(expected) + 128) {}
  /// Take new connections and what all have sent, and answer those that have not proven the secret.
  void take(const Descriptor& listener);
  /// Close what is over the limits, and forget what is closed.
  void tidy();
  /// A host introduces itself: it is asked to repeat a token, or refused.
  void introduce(PendingConnection& client, HostMessage&& message);
  /// Whether it repeats the token: then it is a tsrun that answers, not a line that somebody sent. Else it is refused.
  bool has_answered(PendingConnection& client, const ListeningMessage& message);
  /// Close one, with the reason in scheduler.log.
  void refuse(PendingConnection& client, const std::string& why);
  /// The connections, and the listener if a new one would be taken.
  void watch(std::vector<pollfd>& watched, const Descriptor& listener) const;
  std::list<PendingConnection>& all() { return all_; }
  /// Addresses of hosts that have come with a wrong secret.
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
  std::list<PendingConnection> all_;  ///< the oldest first
  int noted_ = 0;
  std::set<std::string> told_;  ///< with_wrong_secret()
};

}  // namespace tessera::tsrun
