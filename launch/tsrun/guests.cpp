#include "launch/tsrun/guests.h"

#include <sys/socket.h>

#include <algorithm>
#include <cctype>

namespace tessera::tsrun {
namespace {

constexpr int most_accepted_at_once = 64;  // accepted before the others are heard again
constexpr std::ptrdiff_t most_without_proof = 64;
constexpr std::size_t most_bytes_without_proof = 4096;
constexpr double proof_seconds = 5;           // from the connection to the proof
constexpr double displaced_seconds = .25;     // who waits longer makes room: an answer takes milliseconds
constexpr std::size_t most_bytes = 32 << 20;  // of the unfinished lines of all that have proven the secret
constexpr double longest_line_seconds = 10;   // from its first byte to its last
constexpr int most_notes = 100;               // lines in scheduler.log
constexpr std::size_t most_told = 16;         // addresses of hosts with a wrong secret, on the screen

/// A name that anybody may have sent, for the screen.
std::string host_words(const std::string& name) {
  const bool good = !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
  return good ? name : "a host";
}

}  // namespace

std::list<Guest>::const_iterator Guests::longest_without_proof() const {
  return std::find_if(all_.begin(), all_.end(), [](const Guest& guest) { return !guest.challenge.proven(); });
}

bool Guests::has_room() const {
  return std::count_if(all_.begin(), all_.end(), [](const Guest& g) { return !g.challenge.proven(); }) <
         most_without_proof;
}

/// Strangers that only hold their connections keep nobody out for long: who comes from the job answers at once.
bool Guests::make_room() {
  if (has_room()) return true;
  const auto oldest = longest_without_proof();
  if (now() - oldest->since < displaced_seconds) return false;
  note(*oldest, "too many connections without a proof; this one is the oldest");
  all_.erase(oldest);
  return true;
}

void Guests::take(const Descriptor& listener) {
  for (int i = 0; i < most_accepted_at_once && make_room(); i++) {
    const int socket = accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) break;
    all_.emplace_back();
    all_.back().connection = Connection(Descriptor(socket));
    all_.back().connection.limit(most_bytes_without_proof);
  }
  for (auto& guest : all_) {
    guest.connection.write_more();
    guest.connection.fill();
    if (guest.challenge.proven()) continue;
    guest.challenge.hear(guest.connection, secrets_);
    if (guest.challenge.wrong()) tell_wrong_secret(guest);
  }
}

void Guests::tidy() {
  std::size_t bytes = 0, proven = 0;
  for (auto& guest : all_) {
    if (!guest.connection.problem().empty()) note(guest, guest.connection.problem());
    if (!guest.connection.open()) continue;
    if (!guest.challenge.proven()) {
      if (now() - guest.since > proof_seconds) refuse(guest, text("no proof within ", proof_seconds, " s"));
      continue;
    }
    if (guest.connection.line_age() > longest_line_seconds) refuse(guest, "a line that does not end");
    bytes += guest.connection.open() ? guest.connection.buffered() : 0;
    proven += guest.connection.open() ? 1 : 0;
  }
  all_.remove_if([](const Guest& guest) { return !guest.connection.open(); });
  while (proven > 0 && (proven > most_ || bytes > most_bytes)) {
    const auto oldest =
        std::find_if(all_.begin(), all_.end(), [](const Guest& guest) { return guest.challenge.proven(); });
    bytes -= oldest->connection.buffered();
    proven--;
    note(*oldest, "too many connections that do not say who they are; this one is the oldest");
    all_.erase(oldest);
  }
}

void Guests::introduce(Guest& guest, HostMessage&& message) {
  if (guest.info) return refuse(guest, "it introduces itself a second time");
  if (message.info.problem.empty() && message.info.address != guest.connection.peer()) {
    const auto why = text("it names ", message.info.address, " as its address, but its connection comes from ",
                          guest.connection.peer());
    send(guest.connection,
         RefusedMessage{2, text("the tsrun that leads refuses this host: ", why, " (address translation?)")});
    return refuse(guest, why);
  }
  guest.info = std::move(message.info);
  guest.called = std::move(message.called);
  guest.token = random_letters(12);
  send(guest.connection, ListenMessage{guest.token});
}

bool Guests::has_answered(Guest& guest, const ListeningMessage& message) {
  if (guest.info && message.token == guest.token) return true;
  refuse(guest, "an answer to no question");
  return false;
}

void Guests::refuse(Guest& guest, const std::string& why) {
  note(guest, why);
  guest.connection.close();
}

void Guests::note(const Guest& guest, const std::string& why) {
  if (++noted_ > most_notes) return;
  voice_.note(text("closed a connection from ", guest.connection.peer(), ": ", why));
  if (noted_ == most_notes) voice_.note("further connections that are closed are not noted");
}

/// Once for each address, so that strangers do not fill the screen.
void Guests::tell_wrong_secret(const Guest& guest) {
  const auto& address = guest.connection.peer();
  if (guest.challenge.role() != Role::host || told_.size() >= most_told || !told_.insert(address).second) return;
  voice_.say(text("refused the tsrun on ", host_words(guest.challenge.host()), " (", address, "): ",
                  secrets_.job.empty() ? "it gives a secret, and none is given here"
                                       : "it does not know the secret of this job",
                  "; give the same --secret_file or TSRUN_SECRET on every host"),
             log::LogLevel::error);
}

void Guests::watch(std::vector<pollfd>& watched, const Descriptor& listener) const {
  if (has_room()) watched.push_back({listener.number(), POLLIN, 0});
  for (const auto& guest : all_) watched.push_back({guest.connection.number(), POLLIN, 0});
}

}  // namespace tessera::tsrun
