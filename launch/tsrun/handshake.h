#pragma once

#include <string>

#include "launch/tsrun/connection.h"
#include "launch/tsrun/secret.h"

namespace tessera::tsrun {

// The handshake by which the leader of a job and a process that connects to it prove to each other that they know the
// same secret, without sending it. The nonces are new for each connection, so a recorded handshake cannot be replayed.
//
//   client -> leader   hello      role, the client's nonce
//   leader -> client   challenge  the leader's nonce
//   client -> leader   proof      HMAC of role and both nonces
//   leader -> client   proven     HMAC of the leader over the same values; or refused
//
// The client proves first, so an unknown program gets nothing from the leader that was computed from the secret.

/// Role of a process that connects to the leader. host: the tsrun of another host, which knows the secret of the job.
/// worker: the supervisor of a worker or an agent of mpirun, which know the key derived from the secret (workers_key).
enum class Role { host, worker };
std::string name_of(Role role);

/// The secrets that the leader expects: `job` from a host, `workers` from a worker.
struct Secrets {
  std::string job, workers;
};

/// The leader's side of the handshake on one connection.
class Challenge {
 public:
  /// Reads the messages that have arrived and answers them. An unexpected message or a wrong proof closes the
  /// connection; the reason is in client.problem(). Lifts the limit of the connection after a correct proof.
  void handle(Connection& client, const Secrets& secrets);
  bool proven() const { return state_ == State::proven; }
  /// Whether the client has sent a proof with another secret.
  bool wrong() const { return state_ == State::wrong; }
  /// Valid after the first message of the client.
  Role role() const { return role_; }
  /// The host name that the client sent. Not authenticated.
  const std::string& host() const { return host_; }

 private:
  enum class State { hello, proof, proven, wrong };
  State state_ = State::hello;
  Role role_ = Role::host;
  Handshake handshake_;
  std::string host_;
};

/// Why no connection to a leader was made.
struct Failure {
  enum class Kind {
    none,         ///< the handshake succeeded; the connection may have been closed since
    unreachable,  ///< nothing listens there, or it cannot be reached
    dropped,      ///< the other side did not answer in time or closed the connection: another try may succeed
    not_tsrun,    ///< the other side sent something that a leading tsrun does not send
    secret        ///< the other side has another secret
  } kind = Kind::none;
  std::string words;
};

/// Connects once to the leader at `where` (for at most 3 s) and does the handshake with `secret`; waits for each answer
/// for at most `seconds`. On failure it returns a connection that is not open and stores the reason in `failure`.
Connection reach_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure);

/// Calls reach_leader() every 0.2 s until it succeeds, another try cannot help (Failure::Kind not_tsrun and secret), or
/// `seconds` have passed. Negative `seconds`: no time limit. On failure as reach_leader().
Connection find_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure);

}  // namespace tessera::tsrun
