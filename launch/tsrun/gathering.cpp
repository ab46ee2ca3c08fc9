#include "launch/tsrun/gathering.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "launch/tsrun/reach.h"

namespace tessera {
namespace {

constexpr double patience_with_mistakes = 10;  // seconds for the other hosts to come and be told, too
constexpr double reach_seconds = 8;

}  // namespace

int Gathering::present() const {
  int sum = job_.hosts.empty() ? 0 : job_.hosts[0].workers;
  for (const auto& guest : guests_) sum += guest.info ? guest.info->workers : 0;
  return sum;
}

void Gathering::wait_for(int workers) {
  workers_ = workers;
  const double began = now();
  double mistake = 0;
  while (present() < workers) {
    turn();
    if (mistake == 0 && !wrong_.empty()) mistake = now();
    if (mistake != 0 && (now() - mistake > patience_with_mistakes || nobody_else_comes())) break;
    if (job_.options.cluster_time_out >= 0 && now() - began > job_.options.cluster_time_out) {
      for (auto& guest : guests_) guest.connection.send({{"is", "refused"}, {"words", missing()}, {"code", 1}});
      throw Error(missing());
    }
  }
  check();
  if (!wrong_.empty()) refuse();
  put_in_order();
  rename_twins();
  check_reach();
  if (!wrong_.empty()) refuse();
}

bool Gathering::nobody_else_comes() const {
  return !expected_.empty() &&
         std::all_of(expected_.begin(), expected_.end(), [](const Expected& one) { return one.came || one.failed; });
}

std::string Gathering::missing() const {
  std::string all = text("after ", job_.options.cluster_time_out, " s only ", present(), " of ", workers_,
                         " workers' hosts have come:");
  for (const auto& host : job_.hosts)
    all += text(" ", host.host, " (", host.address, ", node_rank ", host.node_rank, ")");
  for (const auto& guest : guests_)
    if (guest.info)
      all += text(" ", guest.info->host, " (", guest.info->address, ", node_rank ", guest.info->node_rank, ")");
  for (const auto& one : expected_)
    if (!one.came) all += text("; ", one.host.name, " has not");
  return all;
}

void Gathering::turn() {
  std::vector<pollfd> watched = {{sockets_.listener.number(), POLLIN, 0}, {sockets_.signals.number(), POLLIN, 0}};
  for (const auto& guest : guests_) watched.push_back({guest.connection.number(), POLLIN, 0});
  poll(watched.data(), watched.size(), 200);
  obey_signals();
  for (int fd = accept4(sockets_.listener.number(), nullptr, nullptr, SOCK_CLOEXEC); fd >= 0;
       fd = accept4(sockets_.listener.number(), nullptr, nullptr, SOCK_CLOEXEC))
    guests_.push_back({Connection(Descriptor(fd)), {}});
  for (auto guest = guests_.begin(); guest != guests_.end();) {
    hear(*guest);
    if (!guest->connection.open() && guest->info)
      voice_.say(text(guest->info->host, " (", guest->info->address, ") has gone away again"));
    guest = guest->connection.open() ? std::next(guest) : guests_.erase(guest);
  }
}

void Gathering::hear(Guest& guest) {
  for (const auto& message : guest.connection.receive()) {
    if (message.at("is") == "signal") kill(getpid(), message.at("signal").get<int>());
    if (message.at("is") == "who") guest.connection.send({{"is", "tsrun"}});
    if (message.at("is") != "host") continue;
    guest.info = message.at("info").get<HostInfo>();
    guest.connection.send({{"is", "heard"}});
    voice_.note(text(guest.info->host, " (", guest.info->address, ") has come with ", guest.info->workers, " workers"));
    if (!guest.info->problem.empty()) wrong_.push_back(text("on ", guest.info->host, ": ", guest.info->problem));
    for (auto& one : expected_)
      if (one.host.name == message.value("called", "")) one.came = true;
  }
}

void Gathering::obey_signals() {
  for (const int s : caught(sockets_.signals)) {
    if (s == SIGCHLD) continue;
    for (auto& guest : guests_)
      guest.connection.send({{"is", "refused"}, {"words", "stopped by " + signal_words(s)}, {"code", 128 + s}});
    throw Error("stopped by " + signal_words(s) + " while waiting for the other hosts");
  }
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
    for (auto& one : expected_)
      if (one.agent == pid && !one.came && (one.failed = true))
        wrong_.push_back(text("host ", one.host.name, ": nothing could be started there (`", job_.options.agent,
                              "` ended with code ", WIFEXITED(status) ? WEXITSTATUS(status) : 128, ")"));
}

/// Everything that does not fit, over all hosts at once.
void Gathering::check() {
  if (!job_.hosts.empty() && !job_.hosts[0].problem.empty())
    wrong_.insert(wrong_.begin(), text("on ", job_.hosts[0].host, ": ", job_.hosts[0].problem));
  if (!wrong_.empty()) return;  // what a host could not find out is not to be compared
  check_ranks();
  if (present() != workers_) wrong_.push_back(text("the hosts bring ", present(), " workers; the job has ", workers_));
  std::vector<const HostInfo*> all;
  for (const auto& host : job_.hosts) all.push_back(&host);
  for (const auto& guest : guests_)
    if (guest.info) all.push_back(&*guest.info);
  for (std::size_t h = 1; h < all.size(); h++) check_against(*all[0], *all[h]);
}

void Gathering::check_ranks() {
  std::set<int> taken;
  const auto take = [&](const HostInfo& host) {
    if (host.node_rank >= 0 && !taken.insert(host.node_rank).second)
      wrong_.push_back(text("node_rank ", host.node_rank, " was started twice, the second time on ", host.host, " (",
                            host.address, ")"));
    const int equal_hosts = host.workers > 0 && workers_ % host.workers == 0 ? workers_ / host.workers : 0;
    if (equal_hosts != 0 && host.node_rank >= equal_hosts)
      wrong_.push_back(text("node_rank ", host.node_rank, " on ", host.host, ": with ", host.workers, " of ", workers_,
                            " workers on each host, it is 0 to ", equal_hosts - 1));
  };
  for (const auto& host : job_.hosts) take(host);
  for (const auto& guest : guests_)
    if (guest.info) take(*guest.info);
}

void Gathering::check_against(const HostInfo& first, const HostInfo& other) {
  for (std::size_t i = 0; i < std::max(first.given.size(), other.given.size()); i++) {
    const auto here = i < first.given.size() ? first.given[i] : "nothing more";
    const auto there = i < other.given.size() ? other.given[i] : "nothing more";
    if (here == there) continue;
    wrong_.push_back(text("not the same on all hosts: ", first.host, " (", first.address, ") has ", here, "; ",
                          other.host, " (", other.address, ") has ", there));
    return;
  }
}

/// By node_rank; those without one fill the gaps in the order of their coming.
void Gathering::put_in_order() {
  struct Place {
    HostInfo info;
    Connection connection;
  };
  std::vector<Place> all;
  for (auto& host : job_.hosts) all.push_back({std::move(host), Connection()});
  for (auto& guest : guests_)
    if (guest.info) all.push_back({std::move(*guest.info), std::move(guest.connection)});
  std::set<int> taken;
  for (const auto& place : all) taken.insert(place.info.node_rank);
  int next = 0;
  for (auto& place : all) {
    if (place.info.node_rank >= 0) continue;
    while (taken.count(next) != 0) next++;
    place.info.node_rank = next;
    taken.insert(next);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Place& a, const Place& b) { return a.info.node_rank < b.info.node_rank; });
  job_.hosts.clear();
  sockets_.hosts.clear();
  for (auto& place : all) {
    job_.hosts.push_back(std::move(place.info));
    sockets_.hosts.push_back(std::move(place.connection));
  }
  guests_.clear();
  job_.workers = workers_;
}

/// MPI takes two hosts of one name for one; those that only share it get another one while the job runs.
void Gathering::rename_twins() {
  for (std::size_t h = 0; h < job_.hosts.size(); h++)
    for (std::size_t other = 0; other < h; other++) {
      auto& host = job_.hosts[h];
      if (host.host != job_.hosts[other].host || host.machine == job_.hosts[other].machine) continue;
      // The head starts MPI under its own name, so another one has to yield.
      const bool head = !sockets_.hosts[h].open();
      auto& yields = head ? job_.hosts[other] : host;
      yields.alias = text(yields.host, "-n", yields.node_rank);
      yields.host = yields.alias;
    }
}

/// Every host tries every other; a pair that cannot talk is named before MPI waits for it.
void Gathering::check_reach() {
  if (job_.hosts.size() == 1 && !sockets_.hosts[0].open()) return;
  std::vector<Target> targets(job_.hosts.size());
  std::vector<Descriptor> own;
  std::size_t waiting = 0;
  for (std::size_t h = 0; h < targets.size(); h++) {
    targets[h] = {job_.words_of(h), job_.hosts[h].address, 0};
    if (sockets_.hosts[h].open()) {
      sockets_.hosts[h].send({{"is", "listen"}});
      waiting++;
    } else {
      own.push_back(listen_at({job_.hosts[h].address, 0}));
      targets[h].port = local_endpoint(own.back()).port;
    }
  }
  const auto hear_all = [&](const std::string& what, auto use) {
    for (const double until = now() + reach_seconds; waiting > 0 && now() < until;) {
      std::vector<pollfd> watched;
      for (const auto& host : sockets_.hosts)
        if (host.open()) watched.push_back({host.number(), POLLIN, 0});
      poll(watched.data(), watched.size(), 100);
      for (std::size_t h = 0; h < sockets_.hosts.size(); h++)
        for (const auto& message : sockets_.hosts[h].receive())
          if (message.at("is") == what) use(h, message), waiting--;
    }
  };
  hear_all("listening", [&](std::size_t h, const Message& message) { targets[h].port = message.at("port"); });
  for (std::size_t h = 0; h < sockets_.hosts.size(); h++)
    if (sockets_.hosts[h].open()) {
      sockets_.hosts[h].send({{"is", "try"}, {"targets", targets}});
      waiting++;
    }
  const auto blame = [&](std::size_t h, const std::vector<std::string>& failed) {
    for (const auto& story : failed) wrong_.push_back(text(job_.words_of(h), " cannot talk to ", story));
  };
  for (std::size_t h = 0; h < sockets_.hosts.size(); h++)
    if (!sockets_.hosts[h].open()) blame(h, unreachable(targets));
  hear_all("tried", [&](std::size_t h, const Message& message) {
    blame(h, message.at("failed").get<std::vector<std::string>>());
  });
  if (waiting > 0) wrong_.emplace_back("not all hosts could tell whether they can talk to each other");
}

void Gathering::refuse() {
  const Message no = {{"is", "refused"}, {"words", ""}, {"code", 2}};
  for (auto& guest : guests_) guest.connection.send(no), guest.connection.flush(1);
  for (auto& host : sockets_.hosts) host.send(no), host.flush(1);
  std::string all;
  for (const auto& line : wrong_) all += (all.empty() ? "" : "\n       ") + line;
  throw ConfigError(all);
}

}  // namespace tessera
