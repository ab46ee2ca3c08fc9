#include "launch/tsrun/pending_connections.h"

#include <sys/socket.h>

#include <algorithm>
#include <cctype>

namespace tessera::tsrun {
namespace {

constexpr int most_accepted_at_once = 64;  // per call, so that connections that are already accepted are read, too
constexpr std::ptrdiff_t most_without_proof = 64;
constexpr std::size_t most_bytes_without_proof = 4096;
constexpr double proof_seconds = 5;  // from the connection to the proof
constexpr double displaced_seconds =
    .25;  // age at which a connection can be closed for a new one; an answer takes milliseconds
constexpr std::size_t most_bytes = 32 << 20;  // unfinished lines of all connections after the handshake
constexpr double longest_line_seconds = 10;   // from the first byte of a line to its last
constexpr int most_notes = 100;               // lines in scheduler.log
constexpr std::size_t most_told = 16;         // addresses of hosts with a wrong secret, on the screen

/// Returns a host name, which any program may have sent, if it is safe for the screen.
std::string host_words(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  return good ? name : "a host";
}

}  // namespace

std::list<PendingConnection>::const_iterator PendingConnections::longest_without_proof() const {
  return std::find_if(all_.begin(), all_.end(),
                      [](const PendingConnection& client) { return !client.challenge.proven(); });
}

bool PendingConnections::has_room() const {
  return std::count_if(all_.begin(), all_.end(), [](const PendingConnection& g) { return !g.challenge.proven(); }) <
         most_without_proof;
}

/// Programs that only hold connections open cannot block a job for long, because the job's processes answer at once.
bool PendingConnections::make_room() {
  if (has_room()) return true;
  const auto oldest = longest_without_proof();
  if (now() - oldest->since < displaced_seconds) return false;
  note(*oldest, "too many connections without a proof; this one is the oldest");
  all_.erase(oldest);
  return true;
}

void PendingConnections::take(const Descriptor& listener) {
  for (int i = 0; i < most_accepted_at_once && make_room(); i++) {
    const int socket = accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) break;
    all_.emplace_back();
    all_.back().connection = Connection(Descriptor(socket));
    all_.back().connection.limit(most_bytes_without_proof);
  }
  for (auto& client : all_) {
    client.connection.write_more();
    client.connection.fill();
    if (client.challenge.proven()) continue;
    client.challenge.handle(client.connection, secrets_);
    if (client.challenge.wrong()) tell_wrong_secret(client);
  }
}

void PendingConnections::tidy() {
  std::size_t bytes = 0, proven = 0;
  for (auto& client : all_) {
    if (!client.connection.problem().empty()) note(client, client.connection.problem());
    if (!client.connection.open()) continue;
    if (!client.challenge.proven()) {
      if (now() - client.since > proof_seconds) refuse(client, text("no proof within ", proof_seconds, " s"));
      continue;
    }
    if (client.connection.line_age() > longest_line_seconds) refuse(client, "a line that does not end");
    bytes += client.connection.open() ? client.connection.buffered() : 0;
    proven += client.connection.open() ? 1 : 0;
  }
  all_.remove_if([](const PendingConnection& client) { return !client.connection.open(); });
  while (proven > 0 && (proven > most_ || bytes > most_bytes)) {
    const auto oldest = std::find_if(all_.begin(), all_.end(),
                                     [](const PendingConnection& client) { return client.challenge.proven(); });
    bytes -= oldest->connection.buffered();
    proven--;
    note(*oldest, "too many connections that do not say who they are; this one is the oldest");
    all_.erase(oldest);
  }
}

void PendingConnections::introduce(PendingConnection& client, HostMessage&& message) {
  if (client.info) return refuse(client, "it introduces itself a second time");
  if (message.info.problem.empty() && message.info.address != client.connection.peer()) {
    const auto why = text("it names ", message.info.address, " as its address, but its connection comes from ",
                          client.connection.peer());
    send(client.connection,
         RefusedMessage{2, text("the leading tsrun refuses this host: ", why, " (address translation?)")});
    return refuse(client, why);
  }
  client.info = std::move(message.info);
  client.called = std::move(message.called);
  client.token = random_letters(12);
  send(client.connection, ListenMessage{client.token});
}

bool PendingConnections::has_answered(PendingConnection& client, const ListeningMessage& message) {
  if (client.info && message.token == client.token) return true;
  refuse(client, "an unexpected answer");
  return false;
}

void PendingConnections::refuse(PendingConnection& client, const std::string& why) {
  note(client, why);
  client.connection.close();
}

void PendingConnections::note(const PendingConnection& client, const std::string& why) {
  if (++noted_ > most_notes) return;
  reporter_.note(text("closed a connection from ", client.connection.peer(), ": ", why));
  if (noted_ == most_notes) reporter_.note("further connections that are closed are not noted");
}

/// Once for each address, so that unknown programs do not fill the screen.
void PendingConnections::tell_wrong_secret(const PendingConnection& client) {
  const auto& address = client.connection.peer();
  if (client.challenge.role() != Role::host || told_.size() >= most_told || !told_.insert(address).second) return;
  reporter_.say(text("refused the tsrun on ", host_words(client.challenge.host()), " (", address, "): ",
                     secrets_.job.empty() ? "it gives a secret, and none is given here"
                                          : "it does not know the secret of this job",
                     "; give the same --secret_file or TSRUN_SECRET on every host"),
                log::LogLevel::error);
}

void PendingConnections::watch(std::vector<pollfd>& watched, const Descriptor& listener) const {
  if (has_room()) watched.push_back({listener.number(), POLLIN, 0});
  for (const auto& client : all_) watched.push_back({client.connection.number(), POLLIN, 0});
}

}  // namespace tessera::tsrun
