// Who may connect to the leader: the handshake of both sides, and what becomes of those that do not prove the secret.
#include "launch/tsrun/pending_connections.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <map>

#include "framework/base/files.h"
#include "launch/tsrun/handshake.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

const std::string known = "0123456789abcdef", other = "0123456789abcdeg";

// Computed by Python's hmac.
TEST(Secret, ProofsAndKeysAreThoseOfAnotherImplementation) {
  const std::string client(64, 'a'), leader(64, 'b'), salt(64, 'c');
  EXPECT_EQ(tsrun::proof_of(tsrun::Prover::client, known, {"host", client, leader}),
            "c48852fd6164a69bd761763b87f697e51acce492280cba63da4c329a6f3d1e76");
  EXPECT_EQ(tsrun::proof_of(tsrun::Prover::leader, "", {"worker", client, leader}),
            "5fe2b0271d35c22bc2e312e56ae89909318e559af85a5b0ab9f3775ba50b9dec");
  EXPECT_EQ(tsrun::workers_key(known, salt), "bade189d2927bd88261a797b7ee6d3048eeb6cdb3de3d49ecb6e01e535206972");
}

class SecretFile : public InOwnFolder {
 protected:
  ~SecretFile() override { unsetenv("TSRUN_SECRET"); }
  static std::string secret_of(const std::string& words, mode_t mode) {
    write("secret", words);
    EXPECT_EQ(chmod("secret", mode), 0);
    tsrun::LaunchOptions options;
    options.secret_file = "secret";
    return tsrun::given_secret(options);
  }
};

TEST_F(SecretFile, IsReadWithoutTheEndOfItsLine) {
  EXPECT_EQ(secret_of(known + " \n", 0600), known);
  EXPECT_EQ(secret_of(known, 0400), known);
  EXPECT_EQ(secret_of(std::string(1024, 'x') + "\n", 0600).size(), 1024U);
}

TEST_F(SecretFile, ThatOthersHaveAccessToIsRefused) {
  for (const mode_t mode : {0604, 0640, 0620, 0602, 0610}) {
    const auto story = story_of([&] { secret_of(known, mode); });
    EXPECT_TRUE(says(story, text("secret: others than its owner have access to it (mode ", std::oct, mode, ")")))
        << mode << story;
    EXPECT_FALSE(says(story, known));
  }
}

TEST_F(SecretFile, ThatHasNoSecretIsRefused) {
  EXPECT_TRUE(says(story_of([] { secret_of("", 0600); }), "has 0 bytes; a secret has 16 to 1024"));
  EXPECT_TRUE(says(story_of([] { secret_of("0123456789abcde\n", 0600); }), "has 15 bytes"));
  EXPECT_TRUE(says(story_of([] { secret_of(std::string(1025, 'x'), 0600); }), "has more than 1024 bytes"));
  tsrun::LaunchOptions options;
  options.secret_file = "none";
  EXPECT_TRUE(says(story_of([&] { tsrun::given_secret(options); }), "--secret_file none: No such file"));
  options.secret_file = ".";
  EXPECT_TRUE(says(story_of([&] { tsrun::given_secret(options); }), "is not a regular file"));
}

TEST_F(SecretFile, OrAVariableThatNobodyInherits) {
  tsrun::LaunchOptions options;
  setenv("TSRUN_SECRET", known.c_str(), 1);
  EXPECT_EQ(tsrun::given_secret(options), known);
  EXPECT_EQ(getenv("TSRUN_SECRET"), nullptr);
  EXPECT_EQ(tsrun::given_secret(options), "");
  setenv("TSRUN_SECRET", "short", 1);
  EXPECT_TRUE(says(story_of([&] { tsrun::given_secret(options); }), "TSRUN_SECRET has 5 bytes"));
  setenv("TSRUN_SECRET", "of the variable, unused", 1);
  EXPECT_EQ(secret_of(known, 0600), known);
  EXPECT_EQ(getenv("TSRUN_SECRET"), nullptr);
}

class PendingConnectionsTest : public InOwnFolder {
 protected:
  PendingConnectionsTest() { reporter_.keep_in("scheduler.log"); }

  tsrun::Descriptor client() {
    std::string why;
    auto end = tsrun::connect_to(where_, 3, why);
    EXPECT_TRUE(end) << why;
    return end;
  }
  void turn() {
    pending_.take(listener_);
    for (auto& one : pending_.all())
      if (one.challenge.proven()) tsrun::next_message<tsrun::RendezvousMessage>(one.connection);
    pending_.tidy();
  }
  template <class Holds>
  void turn_until(const Holds& holds, double seconds = 10) {
    bool held = holds();
    for (const double until = tsrun::now() + seconds; !held && tsrun::now() < until; held = holds()) {
      turn();
      poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(held);
  }
  std::size_t proven() {
    std::size_t count = 0;
    for (const auto& one : pending_.all()) count += one.challenge.proven() ? 1 : 0;
    return count;
  }
  /// The connection of one who comes and proves that secret while the leader listens.
  tsrun::Connection come(tsrun::Role role, const std::string& secret) {
    auto coming =
        std::async(std::launch::async, [&] { return tsrun::reach_leader(where_, role, secret, 5, failure_); });
    turn_until([&] { return coming.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
    return coming.get();
  }
  /// The next line for a client that speaks for itself.
  std::string heard(tsrun::Connection& end) {
    std::optional<std::string> line;
    turn_until([&] {
      end.fill();
      return (line = end.take_line()).has_value() || !end.open();
    });
    return line.value_or("closed");
  }
  template <class Message>
  Message answer(tsrun::Connection& end) {
    std::string why;
    const auto message = tsrun::parse<tsrun::AnyMessage>(heard(end), why);
    const auto* found = message ? std::get_if<Message>(&*message) : nullptr;
    EXPECT_NE(found, nullptr) << why;
    return found == nullptr ? Message() : *found;
  }
  bool closes(tsrun::Connection& end) {
    turn_until([&] {
      end.fill();
      return !end.open();
    });
    return !end.open();
  }
  static void say(const tsrun::Descriptor& end, const std::string& words) {
    EXPECT_EQ(::send(end.number(), words.data(), words.size(), MSG_NOSIGNAL), static_cast<ssize_t>(words.size()));
  }
  static bool logged(const std::string& words) { return read_file("scheduler.log").find(words) != std::string::npos; }

  tsrun::Reporter reporter_;
  tsrun::Descriptor listener_ = tsrun::listen_at({"127.0.0.1", 0});
  const tsrun::Endpoint where_ = tsrun::local_endpoint(listener_);
  const tsrun::Secrets secrets_ = {known, tsrun::workers_key(known, "salt")};
  tsrun::PendingConnections pending_{reporter_, secrets_, 0};
  tsrun::Failure failure_;
};

TEST_F(PendingConnectionsTest, WhoKnowsTheSecretOfItsRoleIsAdmitted) {
  const auto host = come(tsrun::Role::host, secrets_.job);
  const auto worker = come(tsrun::Role::worker, secrets_.workers);
  EXPECT_TRUE(host.open() && worker.open()) << failure_.words;
  ASSERT_EQ(proven(), 2U);
  EXPECT_EQ(pending_.all().front().challenge.role(), tsrun::Role::host);
  EXPECT_EQ(pending_.all().back().challenge.role(), tsrun::Role::worker);
}

TEST_F(PendingConnectionsTest, AWrongSecretIsRefusedAndItsHostIsNamedOnce) {
  for (int time = 0; time < 2; time++)
    for (const auto& wrong : {other, std::string(), secrets_.workers}) {
      EXPECT_FALSE(come(tsrun::Role::host, wrong).open());
      EXPECT_EQ(failure_.kind, tsrun::Failure::Kind::secret);
      EXPECT_TRUE(says(failure_.words, "refuses " + tsrun::host_name() + ", this host: "));
      EXPECT_TRUE(says(failure_.words, wrong.empty() ? "it asks for a secret" : "another one than there"));
    }
  EXPECT_FALSE(come(tsrun::Role::worker, secrets_.job).open());
  EXPECT_EQ(proven(), 0U);
  const auto log = read_file("scheduler.log");
  const auto told = "refused the tsrun on " + tsrun::host_name() + " (127.0.0.1): it does not know the secret";
  EXPECT_NE(log.find(told), std::string::npos) << log;
  EXPECT_EQ(log.find(told), log.rfind(told)) << log;
  EXPECT_FALSE(says(log, known) || says(log, other) || says(log, secrets_.workers));
}

TEST_F(PendingConnectionsTest, AHandshakeThatIsRepeatedProvesNothing) {
  const std::string nonce(64, 'a');
  const auto hello = tsrun::encode(tsrun::HelloMessage{"host", nonce, "b"});
  tsrun::Connection first(client());
  first.send(hello);
  const auto challenge = answer<tsrun::ChallengeMessage>(first);
  const auto proof = tsrun::encode(
      tsrun::ProofMessage{tsrun::proof_of(tsrun::Prover::client, known, {"host", nonce, challenge.nonce})});
  first.send(proof);
  const auto of_head = answer<tsrun::ProvenMessage>(first).proof;
  ASSERT_EQ(proven(), 1U);

  tsrun::Connection again(client());
  again.send(hello + "\n" + proof);
  EXPECT_NE(answer<tsrun::ChallengeMessage>(again).nonce, challenge.nonce);
  answer<tsrun::RefusedMessage>(again);
  EXPECT_TRUE(closes(again));

  tsrun::Connection reflected(client());  // the leader's own proof
  reflected.send(hello);
  answer<tsrun::ChallengeMessage>(reflected);
  reflected.send(tsrun::encode(tsrun::ProofMessage{of_head}));
  answer<tsrun::RefusedMessage>(reflected);
  EXPECT_EQ(proven(), 1U);
}

TEST_F(PendingConnectionsTest, AProofHoldsForOneRole) {
  const std::string nonce(64, 'a');
  tsrun::Connection end(client());
  end.send(tsrun::encode(tsrun::HelloMessage{"worker", nonce, "b"}));
  const auto challenge = answer<tsrun::ChallengeMessage>(end);
  end.send(tsrun::encode(
      tsrun::ProofMessage{tsrun::proof_of(tsrun::Prover::client, secrets_.workers, {"host", nonce, challenge.nonce})}));
  answer<tsrun::RefusedMessage>(end);
  EXPECT_TRUE(closes(end));
}

TEST_F(PendingConnectionsTest, WhatIsNoHandshakeClosesItsConnectionAndNoOther) {
  const auto hello = tsrun::encode(tsrun::HelloMessage{"host", std::string(64, 'a'), "b"}) + "\n";
  const auto proof = tsrun::encode(tsrun::ProofMessage{std::string(64, 'a')}) + "\n";
  tsrun::Connection good(client());
  const auto half = hello.size() / 2;
  say(good.socket(), hello.substr(0, half));
  for (const auto& [words, reason] : std::map<std::string, std::string>{
           {"{\"is\":\"signal\",\"signal\":15}\n", "a message 'signal', which is not expected here"},
           {"GET / HTTP/1.1\r\n\r\n", "not a message of tsrun"},
           {"\n", "not a message of tsrun"},
           {proof, "a proof before the challenge"},
           {hello + hello, "a second hello"},
           {tsrun::encode(tsrun::HelloMessage{"leader", std::string(64, 'a'), "b"}) + "\n", "neither a host nor"},
           {std::string(5000, 'x'), "more bytes than it may send"}}) {
    tsrun::Connection bad(client());
    say(bad.socket(), words);
    EXPECT_TRUE(closes(bad)) << words;
    EXPECT_TRUE(logged(reason)) << words << read_file("scheduler.log");
  }
  say(good.socket(), hello.substr(half));
  answer<tsrun::ChallengeMessage>(good);
  EXPECT_EQ(pending_.all().size(), 1U);
}

TEST_F(PendingConnectionsTest, AStrangerHas4096Bytes) {
  for (const std::size_t bytes : {4096, 4097}) {
    const auto end = client();
    say(end, std::string(bytes, 'x'));
    if (bytes > 4096) turn_until([&] { return logged("more bytes than it may send"); });
    for (const double until = tsrun::now() + .1; tsrun::now() < until;) turn();
    EXPECT_EQ(pending_.all().size(), bytes == 4096 ? 1U : 0U);
    pending_.all().clear();
  }
}

TEST_F(PendingConnectionsTest, AStrangerHasFiveSeconds) {
  const auto half = tsrun::encode(tsrun::HelloMessage{"host", std::string(64, 'a'), "b"}) + "\n{";
  const auto silent = client(), halfway = client(), slow = client();
  const auto friendly = come(tsrun::Role::host, known);
  say(halfway, half);
  const auto grow_older = [&](double seconds) {
    for (auto& one : pending_.all()) one.since -= seconds;
  };
  for (int i = 0; i < 9; i++) {
    say(slow, " ");
    turn();
    grow_older(.2);
  }
  turn();
  EXPECT_EQ(pending_.all().size(), 4U) << "1.8 s, and what this test took";
  grow_older(3.3);
  turn();
  EXPECT_EQ(pending_.all().size(), 1U) << "5.1 s";
  EXPECT_EQ(proven(), 1U);
  EXPECT_TRUE(logged("no proof within 5 s"));
}

TEST_F(PendingConnectionsTest, OfThoseThatDoNotProveTheSecret64AreKeptAndNobodyIsKeptOut) {
  std::vector<tsrun::Descriptor> ends;
  for (int i = 0; i < 300; i++) {
    ends.push_back(client());
    turn();
    ASSERT_LE(pending_.all().size(), 64U);
  }
  EXPECT_TRUE(come(tsrun::Role::host, known).open()) << failure_.words;
  EXPECT_LE(pending_.all().size(), 65U);
  EXPECT_TRUE(logged("too many connections without a proof"));
  char byte = 0;
  EXPECT_EQ(recv(ends.front().number(), &byte, 1, 0), 0);
}

TEST_F(PendingConnectionsTest, WhoHasProvenTheSecretIsStillBounded) {
  auto end = come(tsrun::Role::host, known);
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 9; i++)
    for (std::size_t sent = 0; sent < part.size();) {
      const auto count = ::send(end.number(), part.data() + sent, part.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN) break;
      sent += count > 0 ? static_cast<std::size_t>(count) : 0;
      if (count < 0) turn();
    }
  turn_until([&] { return pending_.all().empty(); });
  EXPECT_TRUE(logged("a line of more than"));
}

/// The other side of the handshake: what answers in the place of the leader.
class FalseLeader : public PendingConnectionsTest {
 protected:
  /// How who connects there fails, after these answers to its lines.
  template <class... Answer>
  tsrun::Failure failure_after(const std::string& secret, const Answer&... answers) {
    constexpr double patience = sizeof...(answers) == 0 ? 1 : 60;  // seconds; who is silent is waited for
    auto coming = std::async(std::launch::async,
                             [&] { tsrun::reach_leader(where_, tsrun::Role::host, secret, patience, failure_); });
    pollfd watched = {listener_.number(), POLLIN, 0};
    EXPECT_EQ(poll(&watched, 1, 60'000), 1);
    tsrun::Connection end(tsrun::Descriptor(accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC)));
    [[maybe_unused]] const auto next = [&] {
      std::optional<std::string> line;
      for (const double until = tsrun::now() + 60; !(line = end.take_line()) && tsrun::now() < until;) end.fill();
      return line.value_or("");
    };
    (end.send(answers(next())), ...);
    coming.wait();
    return failure_;
  }
  static auto always(const std::string& line) {
    return [=](const std::string&) { return line; };
  }
};

TEST_F(FalseLeader, IsFoundOut) {
  const std::string nonce(64, 'b');
  const auto challenge = always(tsrun::encode(tsrun::ChallengeMessage{nonce}));
  // It repeats what it was told: the client's own proof.
  const auto mirror = [](const std::string& line) {
    std::string why;
    const auto told = tsrun::parse<tsrun::AnyMessage>(line, why);
    return tsrun::encode(tsrun::ProvenMessage{std::get<tsrun::ProofMessage>(*told).proof});
  };
  auto failure = failure_after(known, challenge, mirror);
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::secret);
  EXPECT_TRUE(says(failure.words, "does not know the secret that is given on " + tsrun::host_name()));
  failure = failure_after(known, always(tsrun::encode(tsrun::ProvenMessage{nonce})));
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::not_tsrun);
  failure = failure_after(known, challenge, challenge);
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::not_tsrun);
  failure = failure_after(known, always("HTTP/1.1 400 Bad Request"));
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::not_tsrun);
  EXPECT_TRUE(says(failure.words, "not a message of tsrun"));
  failure = failure_after(known);  // silent
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::dropped);
  listener_.close();
  tsrun::reach_leader(where_, tsrun::Role::host, known, 1, failure);
  EXPECT_EQ(failure.kind, tsrun::Failure::Kind::unreachable);
}

}  // namespace
}  // namespace tessera
