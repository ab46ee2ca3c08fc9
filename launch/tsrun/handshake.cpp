#include "launch/tsrun/handshake.h"

#include <poll.h>

#include <algorithm>

#include "launch/tsrun/host.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {
namespace {

constexpr std::size_t nonce_bytes = 32;
constexpr double answer_seconds = 10, retry_seconds = .2, connect_seconds = 3;

/// The next answer of the head; nothing when it does not come in time, the connection ends or the line is none.
std::optional<AnswerMessage> next_answer(Connection& head, double seconds) {
  for (const double until = now() + seconds;;) {
    if (auto message = next_message<AnswerMessage>(head)) return message;
    if (!head.open() || now() > until) return {};
    pollfd watched = {head.number(), POLLIN, 0};
    poll(&watched, 1, 100);
    head.fill();
  }
}

std::string refusal(const Endpoint& where, const std::string& secret) {
  return text("the tsrun that leads, at ", where.address, ":", where.port, ", refuses ", host_name(), ", this host: ",
              secret.empty() ? "it asks for a secret, and none is given here"
                             : "the secret that is given here is another one than there",
              "; give the same --secret_file or TSRUN_SECRET on every host");
}

bool prove(Connection& head, const Endpoint& where, Role role, const std::string& secret, double seconds,
           Failure& failure) {
  const auto fail = [&](Failure::Kind kind, const std::string& words) {
    failure = {kind, words};
    return false;
  };
  const auto nothing_came = [&] {
    if (!head.problem().empty()) return fail(Failure::Kind::stranger, head.problem());
    return fail(Failure::Kind::dropped,
                head.open() ? "it does not answer as a tsrun that leads" : "it closed the connection");
  };
  Handshake handshake = {name_of(role), random_letters(nonce_bytes), ""};
  send(head, HelloMessage{handshake.role, handshake.guest_nonce, host_name()});
  auto answer = next_answer(head, seconds);
  if (!answer) return nothing_came();
  const auto* challenge = std::get_if<ChallengeMessage>(&*answer);
  if (challenge == nullptr) return fail(Failure::Kind::stranger, "an answer without a challenge");
  handshake.head_nonce = challenge->nonce;
  send(head, ProofMessage{proof_of(Prover::guest, secret, handshake)});
  answer = next_answer(head, seconds);
  if (!answer) return nothing_came();
  if (std::holds_alternative<RefusedMessage>(*answer)) return fail(Failure::Kind::secret, refusal(where, secret));
  const auto* proven = std::get_if<ProvenMessage>(&*answer);
  if (proven == nullptr) return fail(Failure::Kind::stranger, "a second challenge");
  if (!same_proof(proven->proof, proof_of(Prover::head, secret, handshake)))
    return fail(Failure::Kind::secret,
                text("what answers at ", where.address, ":", where.port, " does not know the secret that is given on ",
                     host_name(), ", this host: it does not lead this job"));
  return true;
}

}  // namespace

std::string name_of(Role role) { return role == Role::host ? "host" : "worker"; }

void Challenge::hear(Connection& guest, const Secrets& secrets) {
  while (guest.open() && (state_ == State::hello || state_ == State::proof)) {
    const auto message = next_message<StrangerMessage>(guest);
    if (!message) return;
    if (const auto* hello = std::get_if<HelloMessage>(&*message)) {
      if (state_ != State::hello) return guest.refuse("a second hello");
      if (hello->role != name_of(Role::host) && hello->role != name_of(Role::worker))
        return guest.refuse("a hello of neither a host nor a worker");
      role_ = hello->role == name_of(Role::host) ? Role::host : Role::worker;
      host_ = hello->host;
      handshake_ = {hello->role, hello->nonce, random_letters(nonce_bytes)};
      state_ = State::proof;
      send(guest, ChallengeMessage{handshake_.head_nonce});
      continue;
    }
    if (state_ != State::proof) return guest.refuse("a proof before the challenge");
    const auto& secret = role_ == Role::host ? secrets.job : secrets.workers;
    if (!same_proof(std::get<ProofMessage>(*message).proof, proof_of(Prover::guest, secret, handshake_))) {
      state_ = State::wrong;
      send(guest, RefusedMessage{2, ""});
      return guest.refuse("it does not know the secret of the job");
    }
    state_ = State::proven;
    send(guest, ProvenMessage{proof_of(Prover::head, secret, handshake_)});
    guest.lift_limit();
  }
}

Connection reach_head(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure) {
  failure = {};
  Connection head(connect_to(where, connect_seconds, failure.words));
  if (!head.open()) {
    failure.kind = Failure::Kind::unreachable;
    return head;
  }
  if (!prove(head, where, role, secret, seconds, failure)) return Connection();
  if (!head.open()) failure.words = "it closed the connection";
  return head;
}

Connection find_head(const Endpoint& where, Role role, const std::string& secret, double seconds, Failure& failure) {
  for (const double until = now() + seconds;;) {
    const double left = seconds < 0 ? answer_seconds : std::clamp(until - now(), 2.0, answer_seconds);
    auto head = reach_head(where, role, secret, left, failure);
    const bool again = failure.kind == Failure::Kind::unreachable || failure.kind == Failure::Kind::dropped;
    if (head.open() || !again || (seconds >= 0 && now() > until)) return head;
    poll(nullptr, 0, static_cast<int>(retry_seconds * 1000));
  }
}

}  // namespace tessera::tsrun
