#include "launch/tsrun/placement.h"

#include <algorithm>
#include <iterator>
#include <set>

#include "launch/tsrun/messages.h"

namespace tessera::tsrun {

/// A spare host may have had ranks before: then its state is of an older step and must be deleted.
void Placement::welcome(std::size_t h) {
  auto& host = job_.hosts[h];
  bool forget = host.spare;
  for (std::size_t other = 0; other < job_.hosts.size(); other++)
    forget = forget && (other == h || job_.hosts[other].machine != host.machine);
  host.spare = false;
  send(sockets_.hosts[h], WelcomeMessage{.id = job_.id,
                                         .salt = job_.salt,
                                         .alias = host.alias,
                                         .first_rank = job_.first_rank(h),
                                         .ranks = host.workers,
                                         .workers = job_.workers,
                                         .forget = forget});
}

void Placement::leave_lost_hosts(Outcome& outcome, JobFolders& folders) {
  const auto& lost = outcome.lost_hosts;
  if (lost.empty()) return;
  sockets_.spares.handle(reporter_, 1e9);
  for (auto h = lost.rbegin(); h != lost.rend(); ++h) {
    const auto name = job_.words_of(*h);
    const auto ranks = job_.ranks_on(*h);
    const ListedHost listed = {job_.hosts[*h].called, job_.hosts[*h].room};
    tell_left_out(sockets_.hosts[*h]);
    const auto place = replace_by_spares(*h, static_cast<int>(ranks.size()));
    if (place.empty() && !job_.remove_host(*h)) return;
    if (place.empty()) sockets_.hosts.erase(sockets_.hosts.begin() + static_cast<std::ptrdiff_t>(*h));
    job_.lost_hosts++;
    if (!listed.name.empty()) agents_.lost(listed);
    outcome.words += text("\nThe host ", name, " is left out; its ", ranks.size() == 1 ? "rank " : "ranks ",
                          ranks.front(), ranks.size() == 1 ? "" : text(" to ", ranks.back()), " will run on ",
                          place.empty() ? "the hosts that are left" : place);
  }
  outcome.host_lost = false;
  tell_places(folders, false);
}

/// A host that was only stopped, or cut off for a time, reads this when it is back.
void Placement::tell_left_out(Connection& host) const {
  send(host, EndMessage{1,
                        text("this host has not responded to the leading tsrun in time (--host_time_out ",
                             job_.options.host_time_out, " s): the job continues without it"),
                        false});
}

int Placement::room() const { return room_of(job_, sockets_.spares); }

int Placement::fewer_workers(const std::vector<int>& possible) {
  if (!job_.options.shrink || room() >= job_.workers) return 0;
  const auto fits = most_ranks(possible, room());
  std::set<std::string> machines;
  for (const auto& host : job_.hosts) machines.insert(host.machine);
  std::string why;
  if (possible.empty())
    why = "the program has not told with which numbers of workers it can continue";
  else if (machines.size() < job_.hosts.size())
    why = "two of the hosts are one machine";
  else if (fits == 0)
    why = text("with the same global batch the program needs at least ",
               *std::min_element(possible.begin(), possible.end()),
               " workers, and the hosts that are left have room for ", room());
  if (why.empty()) return fits;
  reporter_.say(text("--after_host_loss shrink is not possible: ", why, "; the hosts that are left run all workers"),
                log::LogLevel::warning);
  return 0;
}

void Placement::regroup(int workers, JobFolders& folders) {
  job_.workers = workers;
  int missing = workers;
  for (const auto& host : job_.hosts) missing -= host.room;
  std::vector<int> wanted;
  for (const int one : sockets_.spares.room()) {
    wanted.push_back(missing > 0 ? one : 0);
    missing -= wanted.back();
  }
  for (auto& spare : sockets_.spares.take(wanted)) {
    job_.hosts.push_back(std::move(spare.info));
    sockets_.hosts.push_back(std::move(spare.connection));
  }
  std::vector<int> room;
  for (const auto& host : job_.hosts) room.push_back(host.room);
  std::size_t own = 0;  // index of the leader's host, if it has workers
  while (own < sockets_.hosts.size() && sockets_.hosts[own].open()) own++;
  const auto ranks = ranks_of_hosts(workers, room, own < room.size() ? own : 0);
  for (std::size_t h = job_.hosts.size(); h-- > 0;) {
    job_.hosts[h].workers = ranks[h] > 0 ? ranks[h] : job_.hosts[h].room;
    if (ranks[h] > 0) continue;
    const auto at = static_cast<std::ptrdiff_t>(h);
    sockets_.spares.add(std::move(sockets_.hosts[h]), std::move(job_.hosts[h]));
    sockets_.hosts.erase(sockets_.hosts.begin() + at);
    job_.hosts.erase(job_.hosts.begin() + at);
  }
  tell_places(folders, true);
  reporter_.say(text("continuing with ", workers, " of ", job_.full_workers, " workers: ", words()),
                log::LogLevel::warning);
}

/// Returns text that names the spare hosts; empty if there is none.
std::string Placement::replace_by_spares(std::size_t host, int ranks) {
  auto spares = sockets_.spares.take(ranks_for_spares(ranks, sockets_.spares.room()));
  if (spares.empty()) return "";
  std::vector<HostInfo> infos;
  const auto at = sockets_.hosts.erase(sockets_.hosts.begin() + static_cast<std::ptrdiff_t>(host));
  std::vector<Connection> connections;
  std::string words = spares.size() == 1 ? "the spare host " : "the spare hosts ";
  for (auto& spare : spares) {
    words += text(infos.empty() ? "" : ", ", spare.info.host, " (", spare.info.address, ")");
    infos.push_back(std::move(spare.info));
    connections.push_back(std::move(spare.connection));
  }
  sockets_.hosts.insert(at, std::make_move_iterator(connections.begin()), std::make_move_iterator(connections.end()));
  job_.replace_host(host, infos);
  return words;
}

/// Every host's tsrun holds memory for the state of the ranks that it has now.
void Placement::tell_places(JobFolders& folders, bool forget) {
  if (forget) folders.forget(job_.workers);
  for (std::size_t h = 0; h < job_.hosts.size(); h++) {
    const PlaceMessage place = {job_.first_rank(h), job_.hosts[h].workers, job_.workers, forget};
    if (job_.hosts[h].spare)
      welcome(h);
    else if (sockets_.hosts[h].open())
      send(sockets_.hosts[h], place);
    else
      folders.hold(place.first_rank, place.ranks);
  }
}

std::string Placement::words() const {
  std::string all = text(job_.workers, job_.workers == 1 ? " worker on " : " workers on ");
  for (std::size_t h = 0; h < job_.hosts.size(); h++) {
    const auto& host = job_.hosts[h];
    all += text(h == 0 ? "" : ", ", host.host);
    if (!job_.is_local()) all += text(" (", host.interface, " ", host.address, ")");
  }
  const auto& spares = sockets_.spares.all();
  for (std::size_t i = 0; i < spares.size(); i++)
    all += text(i == 0 ? "; spare: " : ", ", spares[i].info.host, " (", spares[i].info.interface, " ",
                spares[i].info.address, ")");
  return text(all, "; logs in ", job_.log_dir);
}

}  // namespace tessera::tsrun
