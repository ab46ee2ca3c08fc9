#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launch/tsrun/connection.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/reach.h"
#include "launch/tsrun/report.h"
#include "launch/tsrun/worker_environment.h"

namespace tessera::tsrun {

// The messages between the processes of tsrun, one struct for each kind. A message is one line of text: a JSON object
// whose entry "is" holds the kind. messages.cpp lists the fields of each struct with their limits; both encode() and
// parse() use that list. No other code reads JSON from a connection. "Supervisor" is the process beside a worker
// (worker.h).

// The first four messages are the handshake (handshake.h).

/// Client to leader: role ("host" or "worker"), nonce, and host name of the client.
struct HelloMessage {
  static constexpr const char* kind = "hello";
  std::string role, nonce, host;
};
/// Leader to client: the nonce of the leader.
struct ChallengeMessage {
  static constexpr const char* kind = "challenge";
  std::string nonce;
};
/// Client to leader: proof that the client knows the secret.
struct ProofMessage {
  static constexpr const char* kind = "proof";
  std::string proof;
};
/// Leader to client: the client's proof is correct; proof that the leader knows the secret.
struct ProvenMessage {
  static constexpr const char* kind = "proven";
  std::string proof;
};
/// Host to leader: describes the host. `called`: its name in --hosts or --spares; empty if it is not listed.
struct HostMessage {
  static constexpr const char* kind = "host";
  HostInfo info;
  std::string called;
};
/// Leader to host: listen for connections of the other hosts, and send `token` back.
struct ListenMessage {
  static constexpr const char* kind = "listen";
  std::string token;
};
/// Host to leader: it listens at `port` (0: it cannot). The leader then admits the host.
struct ListeningMessage {
  static constexpr const char* kind = "listening";
  std::string token;
  int port = 0;
};
/// Leader to host: connect to all `targets`, to check that the hosts can reach each other.
struct TryMessage {
  static constexpr const char* kind = "try";
  std::vector<Target> targets;
};
/// Host to leader: the targets that could not be reached, each with the reason.
struct TriedMessage {
  static constexpr const char* kind = "tried";
  std::vector<std::string> failed;
};
/// Leader to host: all hosts have come, or this spare host gets ranks.
struct WelcomeMessage {
  static constexpr const char* kind = "welcome";
  std::string id;                 ///< id of the job; part of the names of its folders
  std::string salt;               ///< random text from which the workers' key is derived (secret.h)
  std::string alias;              ///< host name to use while the job runs; empty: its own
  int first_rank = 0, ranks = 0;  ///< ranks on this host: [first_rank, first_rank + ranks)
  int workers = 0;                ///< workers of the job
  bool forget = false;            ///< delete the state of this job in this host's memory, because it is old
};
/// Leader to host: the job runs, and this host waits as a spare host.
struct WaitMessage {
  static constexpr const char* kind = "wait";
  std::string words;  ///< text for the screen of the host
};
/// Leader to host: after a host was lost or came back, this host has other ranks.
struct PlaceMessage {
  static constexpr const char* kind = "place";
  int first_rank = 0, ranks = 0;
  int workers = 0;      ///< workers of the job
  bool forget = false;  ///< delete the state in memory, because it belongs to another number of workers
};
/// Leader to host or client: it is refused. A host ends with exit code `code`.
struct RefusedMessage {
  static constexpr const char* kind = "refused";
  int code = 0;
  std::string words;
};
/// Leader to host: the job has ended with exit code `code`.
struct EndMessage {
  static constexpr const char* kind = "end";
  int code = 0;
  std::string words;
  bool keep = false;  ///< keep the state of the workers in memory for the next run of the same command
};
/// Interval between heartbeats, in seconds.
inline constexpr double heartbeat_seconds = 1;
/// Any direction: the sender is alive. `place`: from a supervisor, the coordinates and the iteration of its worker.
struct HeartbeatMessage {
  static constexpr const char* kind = "heartbeat";
  std::string place;
};
/// Host to leader: this signal was sent to the tsrun on the host. Leader to supervisor: send it to the program.
struct SignalMessage {
  static constexpr const char* kind = "signal";
  int signal = 0;
};
/// Host to leader: the host could not do what the leader asked for.
struct FailedMessage {
  static constexpr const char* kind = "failed";
  std::string words;
};
/// Leader to host: run this shell command, which starts MPI's daemon.
struct RunMessage {
  static constexpr const char* kind = "run";
  std::string words;
};
/// Leader to host or supervisor: kill what runs. `hang`: the reason is that a worker hangs; a supervisor whose worker
/// is in no operation with other workers first has the stacks of its threads written to its log.
struct StopMessage {
  static constexpr const char* kind = "stop";
  bool hang = false;
};
/// Leader to supervisor: the job is done; end.
struct LeaveMessage {
  static constexpr const char* kind = "leave";
};
/// Agent (mpirun's remote shell) to leader: run the command `words` on `host`.
struct AgentMessage {
  static constexpr const char* kind = "agent";
  std::string host, words;
};
/// Supervisor to leader: its rank and the number of the start to which it belongs.
struct WorkerMessage {
  static constexpr const char* kind = "worker";
  int attempt = 0, rank = 0;
  std::string host;
};
/// Supervisor to leader: the program is about to wait for the other workers in MPI_Init.
struct JoiningMessage {
  static constexpr const char* kind = "joining";
};
/// Supervisor to leader: the program has connected to the other workers.
struct JoinedMessage {
  static constexpr const char* kind = "joined";
};
/// Supervisor to leader: how the program ended.
struct EndedMessage {
  static constexpr const char* kind = "ended";
  WorkerEnd end;
};
/// Supervisor to leader: the worker's log cannot be written; the program continues.
struct LogFailedMessage {
  static constexpr const char* kind = "log_failed";
  std::string words;
};
/// Supervisor to leader: how to resume the run, as the program reported it.
struct ResumeMessage {
  static constexpr const char* kind = "resume";
  std::string words;
};
/// Supervisor to leader: the numbers of ranks with which the program can resume, as it reported them.
struct RanksMessage {
  static constexpr const char* kind = "ranks";
  std::vector<int> ranks;
};
/// Leader to supervisor: start the program.
struct StartMessage {
  static constexpr const char* kind = "start";
  WorkerPlace place;
  std::string host;
  std::vector<std::string> program;
  std::string folder;
  Environment environment;
  std::string bind_core, log, launch_folder, order, header;
  int lease = 0, longest_save = 0, leader_time_out = 0;  ///< seconds; see LaunchOptions
};
/// Leader to a tsrun that it starts for --hosts or --spares, on that tsrun's standard input.
struct OrdersMessage {
  static constexpr const char* kind = "orders";
  std::string secret;              ///< secret of the job
  std::vector<std::string> words;  ///< command line of the leader
  std::string called;              ///< name of the host in --hosts or --spares
  int node_rank = 0, workers = 0;
  bool spare = false;
  Environment environment;
};

/// All kinds of message. Reading and writing follow from this list; each kind also has its `fields` in messages.cpp.
using AnyMessage =
    std::variant<HelloMessage, ChallengeMessage, ProofMessage, ProvenMessage, HostMessage, ListenMessage,
                 ListeningMessage, TryMessage, TriedMessage, WelcomeMessage, WaitMessage, PlaceMessage, RefusedMessage,
                 EndMessage, HeartbeatMessage, SignalMessage, FailedMessage, RunMessage, StopMessage, LeaveMessage,
                 AgentMessage, WorkerMessage, JoiningMessage, JoinedMessage, EndedMessage, LogFailedMessage,
                 ResumeMessage, RanksMessage, StartMessage, OrdersMessage>;

// The kinds of message that each receiver accepts in each state. Any other kind is an error there.

/// Accepted by the leader from a connection whose handshake is not complete.
using UnauthenticatedMessage = std::variant<HelloMessage, ProofMessage>;
/// Accepted by the leader after the handshake, while it waits for hosts.
using RendezvousMessage = std::variant<HostMessage, ListeningMessage>;
/// Accepted by the leader after the handshake, while the job runs, until the connection is admitted.
using PendingMessage = std::variant<HostMessage, ListeningMessage, AgentMessage, WorkerMessage>;
/// Accepted by the leader from an admitted host.
using FromHostMessage = std::variant<HeartbeatMessage, SignalMessage, FailedMessage, TriedMessage>;
/// Accepted by the leader from an admitted supervisor.
using FromWorkerMessage = std::variant<HeartbeatMessage, JoiningMessage, JoinedMessage, EndedMessage, LogFailedMessage,
                                       ResumeMessage, RanksMessage>;
/// Accepted by a host from the leader.
using ToHostMessage = std::variant<ListenMessage, TryMessage, WelcomeMessage, WaitMessage, PlaceMessage, RunMessage,
                                   StopMessage, RefusedMessage, EndMessage, HeartbeatMessage>;
/// Accepted by a supervisor from the leader.
using ToWorkerMessage = std::variant<StartMessage, SignalMessage, StopMessage, LeaveMessage, HeartbeatMessage>;

/// Accepted by a client during the handshake.
using AnswerMessage = std::variant<ChallengeMessage, ProvenMessage, RefusedMessage>;
/// Accepted on standard input by a tsrun that a leader started.
using InputMessage = std::variant<OrdersMessage>;

/// Parses one line. Returns nothing and stores the reason in `why` if the line is not a message of a kind in `Any`
/// whose fields are within their limits. Does not throw for any content of `line`.
template <class Any>
std::optional<Any> parse(const std::string& line, std::string& why);

/// Returns the line of a message, without line end. NUL characters become spaces, and bytes that are not UTF-8 become
/// U+FFFD.
std::string encode(AnyMessage message);

/// Sends a message; does nothing if the connection is not open.
inline void send(Connection& connection, AnyMessage message) {
  if (connection.open()) connection.send(encode(std::move(message)));
}

/// Returns the next complete message that has been read. Nothing if there is none, or if the line is not a message that
/// this receiver accepts: then the connection is closed, with the reason in its problem().
template <class Any>
std::optional<Any> next_message(Connection& connection) {
  const auto line = connection.take_line();
  if (!line) return {};
  std::string why;
  auto message = parse<Any>(*line, why);
  if (!message) connection.refuse(why);
  return message;
}

/// Reads what has arrived and returns all complete messages; does not wait.
template <class Any>
std::vector<Any> receive(Connection& connection) {
  std::vector<Any> all;
  connection.fill();
  while (auto message = next_message<Any>(connection)) all.push_back(std::move(*message));
  return all;
}

/// For std::visit: combines one function for each kind of message.
template <class... Functions>
struct Cases : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Cases(Functions...) -> Cases<Functions...>;

}  // namespace tessera::tsrun
