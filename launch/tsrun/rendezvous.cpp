#include "launch/tsrun/rendezvous.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "launch/tsrun/reach.h"

namespace tessera::tsrun {
namespace {

constexpr double patience_with_mistakes = 10;  // seconds for the other hosts to connect, so that they are told, too
constexpr double reach_seconds = 8;

}  // namespace

int Rendezvous::present() const {
  int sum = job_.hosts.empty() ? 0 : job_.hosts[0].workers;
  for (const auto& host : admitted_) sum += host.info.workers;
  return sum;
}

void Rendezvous::wait() {
  const double began = now();
  double mistake = 0;
  while (present() < workers_ || !all_listed_spares_came()) {
    poll_once();
    if (mistake == 0 && !wrong_.empty()) mistake = now();
    if (mistake != 0 && (now() - mistake > patience_with_mistakes || nobody_else_comes())) break;
    if (job_.options.cluster_time_out >= 0 && now() - began > job_.options.cluster_time_out) {
      for (auto* all : {&admitted_, &spares_})
        for (auto& host : *all) send(host.connection, RefusedMessage{1, missing()});
      throw Error(missing());
    }
  }
  check();
  if (!wrong_.empty()) refuse();
  put_in_order();
  rename_duplicates();
  check_reach();
  if (!wrong_.empty()) refuse();
  part_with_spares();
}

bool Rendezvous::all_listed_spares_came() const {
  return std::all_of(expected_.begin(), expected_.end(), [](const Expected& one) { return one.came || !one.spare; });
}

bool Rendezvous::nobody_else_comes() const {
  return !expected_.empty() &&
         std::all_of(expected_.begin(), expected_.end(), [](const Expected& one) { return one.came || one.failed; });
}

std::string Rendezvous::missing() const {
  std::string all = text("after ", job_.options.cluster_time_out, " s only ", present(), " of ", workers_,
                         " workers' hosts have connected:");
  for (const auto& host : job_.hosts)
    all += text(" ", host.host, " (", host.address, ", node_rank ", host.node_rank, ")");
  for (const auto& host : admitted_)
    all += text(" ", host.info.host, " (", host.info.address, ", node_rank ", host.info.node_rank, ")");
  for (const auto& one : expected_)
    if (!one.came) all += text("; ", one.host.name, " has not");
  for (const auto& address : pending_.with_wrong_secret()) all += text("; ", address, " has a wrong secret");
  return all;
}

void Rendezvous::poll_once() {
  std::vector<pollfd> watched = {{sockets_.signals.number(), POLLIN, 0}};
  pending_.watch(watched, sockets_.listener);
  for (const auto* all : {&admitted_, &spares_})
    for (const auto& host : *all) watched.push_back({host.connection.number(), POLLIN, 0});
  wait_for(watched, .2);
  handle_signals();
  pending_.take(sockets_.listener);
  for (auto& client : pending_.all()) handle(client);
  pending_.tidy();
  for (auto* all : {&admitted_, &spares_}) {
    for (auto& host : *all) handle(host);
    all->remove_if([](const Admitted& host) { return !host.connection.open(); });
  }
}

void Rendezvous::handle(PendingConnection& client) {
  if (!client.challenge.proven()) return;
  if (client.challenge.role() != Role::host) return pending_.refuse(client, "a worker before the job has started");
  while (client.connection.open()) {
    auto message = next_message<RendezvousMessage>(client.connection);
    if (!message) return;
    std::visit(Cases{[&](HostMessage& m) { pending_.introduce(client, std::move(m)); },
                     [&](const ListeningMessage& m) { admit(client, m); }},
               *message);
  }
}

void Rendezvous::admit(PendingConnection& client, const ListeningMessage& message) {
  if (!pending_.has_answered(client, message)) return;
  const bool spare = client.info->spare;
  client.info->called = client.called;
  auto& host = (spare ? spares_ : admitted_)
                   .emplace_back(Admitted{std::move(client.connection), std::move(*client.info), message.port});
  reporter_.note(text(host.info.host, " (", host.info.address, ") has connected ",
                      spare ? "as a spare with room for " : "with ", host.info.workers, " workers"));
  if (host.info.problem.empty() && host.port == 0) host.info.problem = "it cannot listen for the other hosts";
  if (!host.info.problem.empty()) wrong_.push_back(text("on ", host.info.host, ": ", host.info.problem));
  for (auto& one : expected_)
    if (one.host.name == client.called) one.came = true;
}

void Rendezvous::handle(Admitted& host) {
  for (const auto& message : receive<FromHostMessage>(host.connection))
    if (const auto* asked = std::get_if<SignalMessage>(&message)) stop(asked->signal);
  if (!host.connection.open())
    reporter_.say(text(host.info.host, " (", host.info.address, ") closed its connection",
                       host.connection.problem().empty() ? "" : ": it sent ", host.connection.problem()));
}

void Rendezvous::stop(int signal) {
  const RefusedMessage no = {128 + signal, "stopped by " + signal_words(signal)};
  for (auto* all : {&admitted_, &spares_})
    for (auto& host : *all) send(host.connection, no);
  for (auto& host : sockets_.hosts) send(host, no);
  throw Error("stopped by " + signal_words(signal) + " while waiting for the other hosts");
}

void Rendezvous::handle_signals() {
  for (const int s : caught(sockets_.signals))
    if (s != SIGCHLD) stop(s);
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
    for (auto& one : expected_)
      if (one.agent == pid && !one.came && (one.failed = true))
        wrong_.push_back(text("host ", one.host.name, ": nothing could be started there (`", job_.options.agent,
                              "` ended with code ", WIFEXITED(status) ? WEXITSTATUS(status) : 128, ")"));
}

/// Finds everything that does not fit together, on all hosts at once.
void Rendezvous::check() {
  if (!job_.hosts.empty() && !job_.hosts[0].problem.empty())
    wrong_.insert(wrong_.begin(), text("on ", job_.hosts[0].host, ": ", job_.hosts[0].problem));
  if (!wrong_.empty()) return;  // the description of such a host is incomplete and cannot be compared
  check_ranks();
  if (present() != workers_)
    wrong_.push_back(text("the hosts have ", present(), " workers in total; the job has ", workers_));
  std::vector<const HostInfo*> all;
  for (const auto& host : job_.hosts) all.push_back(&host);
  for (const auto& host : admitted_) all.push_back(&host.info);
  for (const auto& spare : spares_) all.push_back(&spare.info);
  for (std::size_t h = 1; h < all.size(); h++)
    if (auto words = difference(*all[0], *all[h]); !words.empty()) wrong_.push_back(std::move(words));
}

void Rendezvous::check_ranks() {
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
  for (const auto& host : admitted_) take(host.info);
}

/// Orders hosts by node_rank; hosts without one fill the gaps in the order in which they came. Spare hosts are put at
/// the end until part_with_spares(), because the following checks apply to them, too.
void Rendezvous::put_in_order() {
  std::vector<Admitted> all;
  for (auto& host : job_.hosts) all.push_back({Connection(), std::move(host)});
  for (auto& host : admitted_) all.push_back(std::move(host));
  std::set<int> taken;
  for (const auto& place : all) taken.insert(place.info.node_rank);
  for (auto& spare : spares_) {
    spare.info.node_rank = -1;
    all.push_back(std::move(spare));
  }
  spares_.clear();
  int next = 0;
  for (auto& place : all) {
    if (place.info.node_rank >= 0) continue;
    while (taken.count(next) != 0) next++;
    place.info.node_rank = next;
    taken.insert(next);
  }
  std::stable_sort(all.begin(), all.end(), [](const Admitted& a, const Admitted& b) {
    return std::pair(a.info.spare, a.info.node_rank) < std::pair(b.info.spare, b.info.node_rank);
  });
  job_.hosts.clear();
  sockets_.hosts.clear();
  for (auto& place : all) {
    job_.hosts.push_back(std::move(place.info));
    sockets_.hosts.push_back(std::move(place.connection));
    ports_.push_back(place.port);
  }
  admitted_.clear();
  job_.workers = job_.full_workers = workers_;
  for (auto& host : job_.hosts) host.room = host.workers;
}

void Rendezvous::part_with_spares() {
  while (job_.hosts.size() > 1 && job_.hosts.back().spare) {
    sockets_.spares.add(std::move(sockets_.hosts.back()), std::move(job_.hosts.back()));
    sockets_.hosts.pop_back();
    job_.hosts.pop_back();
  }
  std::reverse(sockets_.spares.all().begin(), sockets_.spares.all().end());
}

/// MPI takes two hosts with the same name for one host; machines that share a name get another one while the job runs.
void Rendezvous::rename_duplicates() {
  for (std::size_t h = 0; h < job_.hosts.size(); h++)
    for (std::size_t other = 0; other < h; other++) {
      auto& host = job_.hosts[h];
      if (host.host != job_.hosts[other].host || host.machine == job_.hosts[other].machine) continue;
      // The leader starts MPI under its own name, so the other host gets another one.
      const bool leader = !sockets_.hosts[h].open();
      auto& yields = leader ? job_.hosts[other] : host;
      yields.alias = text(yields.host, "-n", yields.node_rank);
      yields.host = yields.alias;
    }
}

/// Every host connects to every other; a pair that cannot connect is reported before MPI would wait for it.
void Rendezvous::check_reach() {
  const auto is_head = [&](std::size_t h) { return ports_[h] == 0; };
  const auto hosts = job_.hosts.size();
  if (hosts == 1 && is_head(0)) return;
  std::vector<Target> targets(hosts);
  std::vector<Descriptor> own;
  for (std::size_t h = 0; h < hosts; h++) {
    targets[h] = {job_.words_of(h), job_.hosts[h].address, ports_[h]};
    if (!is_head(h)) continue;
    own.push_back(listen_at({job_.hosts[h].address, 0}));
    targets[h].port = local_endpoint(own.back()).port;
  }
  std::set<std::size_t> waiting;
  for (std::size_t h = 0; h < hosts; h++)
    if (!is_head(h)) {
      send(sockets_.hosts[h], TryMessage{targets});
      waiting.insert(h);
    }
  const auto blame = [&](std::size_t h, const std::vector<std::string>& failed) {
    for (const auto& story : failed) wrong_.push_back(text(job_.words_of(h), " cannot connect to ", story));
  };
  for (std::size_t h = 0; h < hosts; h++)
    if (is_head(h)) blame(h, unreachable(targets));
  for (const double until = now() + reach_seconds; !waiting.empty() && now() < until;) {
    std::vector<pollfd> watched = {{sockets_.signals.number(), POLLIN, 0}};
    for (const auto h : waiting) watched.push_back({sockets_.hosts[h].number(), POLLIN, 0});
    wait_for(watched, .1);
    handle_signals();
    for (std::size_t h = 0; h < hosts; h++) {
      for (const auto& message : receive<FromHostMessage>(sockets_.hosts[h])) {
        if (const auto* asked = std::get_if<SignalMessage>(&message)) stop(asked->signal);
        if (const auto* tried = std::get_if<TriedMessage>(&message); tried != nullptr && waiting.erase(h) != 0)
          blame(h, tried->failed);
      }
      if (is_head(h) || sockets_.hosts[h].open()) continue;
      waiting.erase(h);
      if (job_.hosts[h].spare) continue;  // Spares::handle reports it
      wrong_.push_back(text("the tsrun on ", job_.words_of(h), " has ended"));
      return;
    }
  }
  if (!waiting.empty()) wrong_.emplace_back("not all hosts reported whether they can connect to each other");
}

void Rendezvous::refuse() {
  const RefusedMessage no = {2, ""};
  for (auto* all : {&admitted_, &spares_})
    for (auto& host : *all) send(host.connection, no), host.connection.flush(1);
  for (auto& host : sockets_.hosts) send(host, no), host.flush(1);
  std::string all;
  for (const auto& line : wrong_) all += (all.empty() ? "" : "\n       ") + line;
  throw ConfigError(all);
}

}  // namespace tessera::tsrun
