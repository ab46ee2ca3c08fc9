#include "launch/tsrun/spares.h"

#include <algorithm>

namespace tessera::tsrun {

void Spares::add(Connection connection, HostInfo info) {
  info.spare = true;
  info.room = info.workers;
  all_.push_back({std::move(connection), std::move(info)});
  const auto& spare = all_.back();
  send(all_.back().connection,
       WaitMessage{text("this host waits as a spare with room for ", spare.info.workers,
                        spare.info.workers == 1 ? " rank" : " ranks", "; it gets the ranks of a host that is lost")});
}

void Spares::admit(const Job& job, PendingConnections& pending, PendingConnection& client, Reporter& reporter) {
  auto info = std::move(*client.info);
  info.called = client.called;
  const auto why = info.problem.empty() ? difference(job.hosts.at(0), info) : info.problem;
  if (!why.empty()) {
    send(client.connection, RefusedMessage{2, text("the leading tsrun refuses this host as a spare: ", why)});
    return pending.refuse(client, why);
  }
  // MPI takes two hosts with the same name for one host.
  const auto taken = [&](const std::string& name) {
    const auto is_that = [&](const HostInfo& other) { return other.host == name && other.machine != info.machine; };
    return std::any_of(job.hosts.begin(), job.hosts.end(), is_that) ||
           std::any_of(all_.begin(), all_.end(), [&](const Spare& spare) { return is_that(spare.info); });
  };
  for (int number = 1; taken(info.host); number++)
    info.host = info.alias =
        text(info.alias.empty() ? info.host : info.host.substr(0, info.host.rfind("-s")), "-s", number);
  reporter.say(text(info.host, " (", info.address, ") has connected, and waits as a spare host with room for ",
                    info.workers, info.workers == 1 ? " rank" : " ranks"));
  add(std::move(client.connection), std::move(info));
}

void Spares::watch(std::vector<pollfd>& watched) const {
  for (const auto& spare : all_) watched.push_back({spare.connection.number(), POLLIN, 0});
}

void Spares::handle(Reporter& reporter, double longest_silence) {
  for (auto& [connection, info] : all_) {
    connection.write_more();
    std::string why;
    for (const auto& message : receive<FromHostMessage>(connection))
      if (const auto* asked = std::get_if<SignalMessage>(&message)) {
        why = text("was stopped by ", signal_words(asked->signal));
        send(connection, RefusedMessage{128 + asked->signal, text("this spare host ", why)});
      }
    if (why.empty() && !connection.open())
      why = connection.problem().empty() ? "has ended" : text("was cut off: it sent ", connection.problem());
    if (why.empty() && connection.is_silent_for(longest_silence) &&
        connection.is_silent_for(silence_allowed(longest_silence, process_here(info))))
      why = text("has not responded for ", longest_silence, " s");
    if (why.empty()) continue;
    reporter.say(text("the spare host ", info.host, " (", info.address, ") ", why, "; the job continues without it"),
                 log::LogLevel::warning);
    connection.close();
  }
  all_.erase(std::remove_if(all_.begin(), all_.end(), [](const Spare& spare) { return !spare.connection.open(); }),
             all_.end());
}

int room_of(const Job& job, Spares& spares) {
  int all = 0;
  for (const auto& host : job.hosts) all += host.room;
  for (const auto& spare : spares.all()) all += spare.info.room;
  return all;
}

std::vector<int> Spares::room() const {
  std::vector<int> all;
  for (const auto& spare : all_) all.push_back(spare.connection.open() ? spare.info.workers : 0);
  return all;
}

std::vector<Spares::Spare> Spares::take(const std::vector<int>& ranks) {
  std::vector<Spare> taken, left;
  for (std::size_t i = 0; i < all_.size(); i++) {
    const int count = i < ranks.size() ? ranks[i] : 0;
    auto& to = count > 0 ? taken : left;
    to.push_back(std::move(all_[i]));
    if (count > 0) to.back().info.workers = count;
  }
  all_ = std::move(left);
  return taken;
}

}  // namespace tessera::tsrun
