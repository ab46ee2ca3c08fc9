#include "launch/tsrun/guests.h"

#include <sys/socket.h>

namespace tessera::tsrun {
namespace {

constexpr int most_accepted_at_once = 64;     // accepted before the others are heard again
constexpr std::size_t most_bytes = 32 << 20;  // of all guests' unfinished lines
constexpr double longest_line_seconds = 10;   // from its first byte to its last
constexpr int most_notes = 100;               // lines in scheduler.log

}  // namespace

void Guests::take(const Descriptor& listener) {
  for (int i = 0; i < most_accepted_at_once; i++) {
    const int socket = accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) break;
    all_.emplace_back();
    all_.back().connection = Connection(Descriptor(socket));
  }
  for (auto& guest : all_) guest.connection.fill();
}

void Guests::tidy() {
  std::size_t bytes = 0;
  for (auto& guest : all_) {
    if (!guest.connection.problem().empty()) note(guest, guest.connection.problem());
    if (guest.connection.line_age() > longest_line_seconds) refuse(guest, "a line that does not end");
    bytes += guest.connection.open() ? guest.connection.buffered() : 0;
  }
  all_.remove_if([](const Guest& guest) { return !guest.connection.open(); });
  while (!all_.empty() && (all_.size() > most_ || bytes > most_bytes)) {
    bytes -= all_.front().connection.buffered();
    note(all_.front(), "too many connections that do not say who they are; this one is the oldest");
    all_.pop_front();
  }
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

void Guests::watch(std::vector<pollfd>& watched) const {
  for (const auto& guest : all_) watched.push_back({guest.connection.number(), POLLIN, 0});
}

}  // namespace tessera::tsrun
