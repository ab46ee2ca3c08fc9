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

// The messages between the processes of tsrun: one struct for each kind. On the wire a message is one line, a JSON
// object whose "is" is the kind. messages.cpp lists the fields of each struct with their limits; writing and parsing
// both use that list. Nothing else reads JSON that came from a connection.

// The first four are the handshake (handshake.h).

/// Of who connects to the leader: what it is, a nonce, and what it calls its host.
struct HelloMessage {
  static constexpr const char* kind = "hello";
  std::string role, nonce, host;
};
/// The leader's answer.
struct ChallengeMessage {
  static constexpr const char* kind = "challenge";
  std::string nonce;
};
struct ProofMessage {
  static constexpr const char* kind = "proof";
  std::string proof;
};
/// The proof was right; this is the leader's.
struct ProvenMessage {
  static constexpr const char* kind = "proven";
  std::string proof;
};
/// The tsrun of another host introduces itself. `called`: its name in --hosts, or empty.
struct HostMessage {
  static constexpr const char* kind = "host";
  HostInfo info;
  std::string called;
};
/// The leader's answer to a host: listen for the other hosts, and repeat the token.
struct ListenMessage {
  static constexpr const char* kind = "listen";
  std::string token;
};
/// The host listens at that port (0: it cannot). With it, it is admitted.
struct ListeningMessage {
  static constexpr const char* kind = "listening";
  std::string token;
  int port = 0;
};
/// Connect to these.
struct TryMessage {
  static constexpr const char* kind = "try";
  std::vector<Target> targets;
};
/// Those that could not be connected to, with the reason.
struct TriedMessage {
  static constexpr const char* kind = "tried";
  std::vector<std::string> failed;
};
/// All hosts have come, or a spare host gets ranks.
struct WelcomeMessage {
  static constexpr const char* kind = "welcome";
  std::string id;    ///< of the job; names its folders
  std::string salt;  ///< for the key of the workers (secret.h)
  std::string alias;
  int first_rank = 0, ranks = 0;  ///< of this host
  int workers = 0;                ///< of the job
  bool forget = false;            ///< state of this job in this host's memory is old: delete it
};
/// The job runs, and this host waits as a spare.
struct WaitMessage {
  static constexpr const char* kind = "wait";
  std::string words;  ///< who waits for what, for its screen
};
/// A host was lost, or is back: this one has these ranks from now on.
struct PlaceMessage {
  static constexpr const char* kind = "place";
  int first_rank = 0, ranks = 0;
  int workers = 0;      ///< of the job
  bool forget = false;  ///< the state in memory is that of other ranks: delete it
};
/// The host or the job is refused; the host ends with `code`.
struct RefusedMessage {
  static constexpr const char* kind = "refused";
  int code = 0;
  std::string words;
};
/// The job has ended.
struct EndMessage {
  static constexpr const char* kind = "end";
  int code = 0;
  std::string words;
  bool keep = false;  ///< the state of the workers stays for the same command
};
/// Seconds between two heartbeats.
inline constexpr double heartbeat_seconds = 1;
/// The sender is alive. `place`: where its worker stands, if it watches one.
struct HeartbeatMessage {
  static constexpr const char* kind = "heartbeat";
  std::string place;
};
/// To the leader: this signal came on a host. To a worker: pass it to the program.
struct SignalMessage {
  static constexpr const char* kind = "signal";
  int signal = 0;
};
/// A host could not do what it was asked for.
struct FailedMessage {
  static constexpr const char* kind = "failed";
  std::string words;
};
/// To a host: run this shell command, the daemon of MPI.
struct RunMessage {
  static constexpr const char* kind = "run";
  std::string words;
};
/// Kill what runs. `hang`: because some worker hangs, so one that is in no operation with others tells its stacks
/// first.
struct StopMessage {
  static constexpr const char* kind = "stop";
  bool hang = false;
};
/// The job is done: end.
struct LeaveMessage {
  static constexpr const char* kind = "leave";
};
/// mpirun's remote shell asks for a command on a host.
struct AgentMessage {
  static constexpr const char* kind = "agent";
  std::string host, words;
};
/// The supervisor of a worker introduces itself.
struct WorkerMessage {
  static constexpr const char* kind = "worker";
  int attempt = 0, rank = 0;
  std::string host;
};
/// The program is about to wait for the other workers.
struct JoiningMessage {
  static constexpr const char* kind = "joining";
};
/// The program has met the other workers.
struct JoinedMessage {
  static constexpr const char* kind = "joined";
};
struct EndedMessage {
  static constexpr const char* kind = "ended";
  WorkerEnd end;
};
/// The worker's log cannot be written; the program continues.
struct LogFailedMessage {
  static constexpr const char* kind = "log_failed";
  std::string words;
};
/// From a supervisor: how the work of the program is continued, as the program told it.
struct ResumeMessage {
  static constexpr const char* kind = "resume";
  std::string words;
};
/// From a supervisor: the numbers of ranks with which the program can be continued, as it told.
struct RanksMessage {
  static constexpr const char* kind = "ranks";
  std::vector<int> ranks;
};
/// To a supervisor: start the program.
struct StartMessage {
  static constexpr const char* kind = "start";
  WorkerPlace place;
  std::string host;
  std::vector<std::string> program;
  std::string folder;
  Environment environment;
  std::string bind_core, log, launch_folder, order, header;
  int lease = 0, longest_save = 0, leader_time_out = 0;  ///< seconds: LaunchOptions
};
/// What a host that --hosts starts gets on its standard input.
struct OrdersMessage {
  static constexpr const char* kind = "orders";
  std::string secret;  ///< of the job
  std::vector<std::string> words;
  std::string called;
  int node_rank = 0, workers = 0;
  bool spare = false;
  Environment environment;
};

// What each receiver understands. Any other kind is an error there.
using AnyMessage =
    std::variant<HelloMessage, ChallengeMessage, ProofMessage, ProvenMessage, HostMessage, ListenMessage,
                 ListeningMessage, TryMessage, TriedMessage, WelcomeMessage, WaitMessage, PlaceMessage, RefusedMessage,
                 EndMessage, HeartbeatMessage, SignalMessage, FailedMessage, RunMessage, StopMessage, LeaveMessage,
                 AgentMessage, WorkerMessage, JoiningMessage, JoinedMessage, EndedMessage, LogFailedMessage,
                 ResumeMessage, RanksMessage, StartMessage, OrdersMessage>;
/// The leader from a connection that has not proven the secret.
using UnauthenticatedMessage = std::variant<HelloMessage, ProofMessage>;
/// The leader, while it waits for hosts, from one that has, but is not admitted.
using RendezvousMessage = std::variant<HostMessage, ListeningMessage>;
/// The leader, while the job runs, from one that has, but is not admitted.
using PendingMessage = std::variant<HostMessage, ListeningMessage, AgentMessage, WorkerMessage>;
/// The leader from an admitted host.
using FromHostMessage = std::variant<HeartbeatMessage, SignalMessage, FailedMessage, TriedMessage>;
/// The leader from an admitted worker's supervisor.
using FromWorkerMessage = std::variant<HeartbeatMessage, JoiningMessage, JoinedMessage, EndedMessage, LogFailedMessage,
                                       ResumeMessage, RanksMessage>;
/// A host from the leader.
using ToHostMessage = std::variant<ListenMessage, TryMessage, WelcomeMessage, WaitMessage, PlaceMessage, RunMessage,
                                   StopMessage, RefusedMessage, EndMessage, HeartbeatMessage>;
/// A supervisor from the leader.
using ToWorkerMessage = std::variant<StartMessage, SignalMessage, StopMessage, LeaveMessage, HeartbeatMessage>;

/// Who connects, from whoever answers there.
using AnswerMessage = std::variant<ChallengeMessage, ProvenMessage, RefusedMessage>;
/// A host that --hosts starts, from its standard input.
using InputMessage = std::variant<OrdersMessage>;

/// The message in a line, or nothing and the reason in `why`. Never throws because of what the line holds.
template <class Any>
std::optional<Any> parse(const std::string& line, std::string& why);

/// The line of a message, without its end. NUL characters become spaces, bytes that are not UTF-8 the character U+FFFD.
template <class Message>
std::string encode(const Message& message);

template <class Message>
void send(Connection& connection, const Message& message) {
  if (connection.open()) connection.send(encode(message));
}

/// The next message that has come whole. Nothing when there is none yet, or when the line is none that this receiver
/// understands: the connection is then closed, with the reason in its problem().
template <class Any>
std::optional<Any> next_message(Connection& connection) {
  const auto line = connection.take_line();
  if (!line) return {};
  std::string why;
  auto message = parse<Any>(*line, why);
  if (!message) connection.refuse(why);
  return message;
}

/// All messages that have come; nothing waits.
template <class Any>
std::vector<Any> receive(Connection& connection) {
  std::vector<Any> all;
  connection.fill();
  while (auto message = next_message<Any>(connection)) all.push_back(std::move(*message));
  return all;
}

/// For std::visit: one function for each kind of message.
template <class... Functions>
struct Cases : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
Cases(Functions...) -> Cases<Functions...>;

}  // namespace tessera::tsrun
