#pragma once

#include <string>

#include "launch/tsrun/connection.h"
#include "launch/tsrun/secret.h"

namespace tessera::tsrun {

// How the leader of a job and whoever connects to it prove to each other that they know the same secret, without
// sending it. All values are new for each connection, so what was said on one proves nothing on another.
//
//   client -> leader   hello      role, the client's nonce
//   leader -> client   challenge  the leader's nonce
//   client -> leader   proof      HMAC of role and both nonces
//   leader -> client   proven     the same of the leader; or refused
//
// The client is first, so an unknown program gets nothing from the leader that was computed from the secret.

/// Who connects: the tsrun of another host, which knows the secret of the job; or the supervisor of a worker or an
/// agent of mpirun, which know the key that is made from it (workers_key).
enum class Role { host, worker };
std::string name_of(Role role);

/// What the leader expects its pending to know.
struct Secrets {
  std::string job, workers;
};

/// The leader's side, for one connection.
class Challenge {
 public:
  /// Answers what has come. What does not belong there closes the connection, with the reason in its problem().
  void handle(Connection& client, const Secrets& secrets);
  bool proven() const { return state_ == State::proven; }
  /// It has tried, with another secret.
  bool wrong() const { return state_ == State::wrong; }
  Role role() const { return role_; }
  /// What the client calls its host: what anybody may say.
  const std::string& host() const { return host_; }

 private:
  enum class State { hello, proof, proven, wrong };
  State state_ = State::hello;
  Role role_ = Role::host;
  Handshake handshake_;
  std::string host_;
};

/// Why there is no leader.
struct Failure {
  enum class Kind {
    none,         ///< there is one; its connection may have ended since
    unreachable,  ///< nobody listens there
    dropped,      ///< somebody does, but has not answered or has closed the connection: another try may help
    not_tsrun,    ///< sends what no leading tsrun sends
    secret        ///< has another secret
  } kind = Kind::none;
  std::string words;
};

/// Connects once and proves `secret`. Waits for each answer for at most so long. A connection that is not open, and the
/// reason in `failure`, when that fails.
Connection reach_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure);

/// The same until it succeeds, a further try does not help, or `seconds` are over (negative: without end).
Connection find_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure);

}  // namespace tessera::tsrun
