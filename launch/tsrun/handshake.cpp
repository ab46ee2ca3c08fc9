#include "launch/tsrun/handshake.h"

#include <poll.h>

#include <algorithm>

#include "launch/tsrun/host.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {
namespace {

constexpr std::size_t nonce_bytes = 32;
constexpr double answer_seconds = 10, retry_seconds = .2, connect_seconds = 3;

/// Returns the next answer of the leader; nothing if it does not come in time, the connection ends or the line is not
/// an answer.
std::optional<AnswerMessage> next_answer(Connection& leader, double seconds) {
  for (const double until = now() + seconds;;) {
    if (auto message = next_message<AnswerMessage>(leader)) return message;
    if (!leader.open() || now() > until) return {};
    pollfd watched = {leader.number(), POLLIN, 0};
    wait_for({&watched, 1}, .1);
    leader.fill();
  }
}

std::string refusal(const Endpoint& where, const std::string& secret) {
  return text("the leading tsrun, at ", words_of(where), ", refuses ", host_name(), ", this host: ",
              secret.empty() ? "it asks for a secret, and none is given here"
                             : "the secret that is given here is another one than there",
              "; give the same --secret_file or TSRUN_SECRET on every host");
}

bool prove(Connection& leader, const Endpoint& where, Role role, const std::string& secret, double seconds,
           Failure& failure) {
  const auto fail = [&](Failure::Kind kind, const std::string& words) {
    failure = {kind, words};
    return false;
  };
  const auto nothing_came = [&] {
    if (!leader.problem().empty()) return fail(Failure::Kind::not_tsrun, leader.problem());
    return fail(Failure::Kind::dropped,
                leader.open() ? "it does not answer as a leading tsrun" : "it closed the connection");
  };
  Handshake handshake = {name_of(role), random_letters(nonce_bytes), ""};
  send(leader, HelloMessage{handshake.role, handshake.client_nonce, host_name()});
  auto answer = next_answer(leader, seconds);
  if (!answer) return nothing_came();
  const auto* challenge = std::get_if<ChallengeMessage>(&*answer);
  if (challenge == nullptr) return fail(Failure::Kind::not_tsrun, "an answer without a challenge");
  handshake.leader_nonce = challenge->nonce;
  send(leader, ProofMessage{proof_of(Prover::client, secret, handshake)});
  answer = next_answer(leader, seconds);
  if (!answer) return nothing_came();
  if (std::holds_alternative<RefusedMessage>(*answer)) return fail(Failure::Kind::secret, refusal(where, secret));
  const auto* proven = std::get_if<ProvenMessage>(&*answer);
  if (proven == nullptr) return fail(Failure::Kind::not_tsrun, "a second challenge");
  if (!same_proof(proven->proof, proof_of(Prover::leader, secret, handshake)))
    return fail(Failure::Kind::secret,
                text("what answers at ", words_of(where), " does not know the secret that is given on ", host_name(),
                     ", this host: it does not lead this job"));
  return true;
}

}  // namespace

std::string name_of(Role role) { return role == Role::host ? "host" : "worker"; }

void Challenge::handle(Connection& client, const Secrets& secrets) {
  while (client.open() && (state_ == State::hello || state_ == State::proof)) {
    const auto message = next_message<UnauthenticatedMessage>(client);
    if (!message) return;
    if (const auto* hello = std::get_if<HelloMessage>(&*message)) {
      if (state_ != State::hello) return client.refuse("a second hello");
      if (hello->role != name_of(Role::host) && hello->role != name_of(Role::worker))
        return client.refuse("a hello of neither a host nor a worker");
      role_ = hello->role == name_of(Role::host) ? Role::host : Role::worker;
      host_ = hello->host;
      handshake_ = {hello->role, hello->nonce, random_letters(nonce_bytes)};
      state_ = State::proof;
      send(client, ChallengeMessage{handshake_.leader_nonce});
      continue;
    }
    if (state_ != State::proof) return client.refuse("a proof before the challenge");
    const auto& secret = role_ == Role::host ? secrets.job : secrets.workers;
    if (!same_proof(std::get<ProofMessage>(*message).proof, proof_of(Prover::client, secret, handshake_))) {
      state_ = State::wrong;
      send(client, RefusedMessage{2, ""});
      return client.refuse("it does not know the secret of the job");
    }
    state_ = State::proven;
    send(client, ProvenMessage{proof_of(Prover::leader, secret, handshake_)});
    client.lift_limit();
  }
}

Connection reach_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure) {
  failure = {};
  Connection leader(connect_to(where, connect_seconds, failure.words));
  if (!leader.open()) {
    failure.kind = Failure::Kind::unreachable;
    return leader;
  }
  if (!prove(leader, where, role, secret, seconds, failure)) return Connection();
  if (!leader.open()) failure.words = "it closed the connection";
  return leader;
}

Connection find_leader(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure) {
  for (const double until = now() + seconds;;) {
    const double left = seconds < 0 ? answer_seconds : std::clamp(until - now(), 2.0, answer_seconds);
    auto leader = reach_leader(where, role, secret, left, failure);
    const bool again = failure.kind == Failure::Kind::unreachable || failure.kind == Failure::Kind::dropped;
    if (leader.open() || !again || (seconds >= 0 && now() > until)) return leader;
    wait_for({}, retry_seconds);
  }
}

}  // namespace tessera::tsrun
