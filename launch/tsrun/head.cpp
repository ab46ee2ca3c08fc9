#include "launch/tsrun/head.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "framework/worker/launch_link.h"
#include "launch/tsrun/gathering.h"
#include "launch/tsrun/restarts.h"
#include "launch/tsrun/run_folder.h"

namespace tessera::tsrun {
namespace {

std::string quoted(const std::string& word) {
  std::string all = "'";
  for (const char letter : word) all += letter == '\'' ? "'\\''" : std::string(1, letter);
  return all + "'";
}

/// The command that a job continues with: without --left and its value, which stand before the `program` words at the end.
std::vector<std::string> lasting_words(const std::vector<std::string>& words, std::size_t program) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < words.size(); i++) {
    const bool ours = i + program < words.size();
    if (ours && words[i] == "--left")
      i++;
    else if (!ours || words[i].rfind("--left=", 0) != 0)
      all.push_back(words[i]);
  }
  return all;
}

/// This host's address on the way to another: no packet is sent.
std::string address_towards(const std::string& host) {
  const Endpoint there = {resolve(host), 9};
  const Descriptor socket = datagram_towards(there);
  return local_endpoint(socket).address;
}

class Head {
 public:
  Head(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret) : words_(words) {
    job_.options = options;
    job_.id = random_letters(5);
    job_.secret = secret;
    job_.salt = random_letters(32);
    job_.key = workers_key(secret, job_.salt);
  }

  int run(Descriptor listener) {
    sockets_.listener = std::move(listener);
    gather();
    auto folders = make_folders();
    if (adopted_)
      voice_.say(text("continuing from the state in ", folders.memory(), ", which a tsrun that was killed left"),
                 log::LogLevel::warning);
    for (const auto& note : job_.options.notes) voice_.say(note);
    voice_.say(beginning());
    LogFollower logs(std::cout);
    follow_logs(logs);
    const auto start = [&](const char* order) {
      folders.clear();
      folders.record_start(starts_);
      return Attempt(job_, folders, starts_++, order, sockets_, voice_, logs).run();
    };
    Restarts restarts(job_.options.max_restarts, adopted_ ? 0 : -1);
    const auto start_all = [&](const char* order) {
      auto outcome = start(order);
      restarts.carry_held(outcome);
      std::error_code absent;  // if all who could tell it were killed with their programs
      if (outcome.held < 0 && std::filesystem::exists(worker::kept_file(folders.memory()), absent)) outcome.held = 0;
      leave_lost_hosts(outcome, folders);
      return outcome;
    };
    if (!job_.options.left.empty()) return end(only_left(start_all(job_.options.left.c_str()), folders));
    auto outcome = start_all("");
    while (outcome.kind == Outcome::Kind::failed) {
      const auto decision = restarts.decide(outcome);
      if (decision != Restarts::Decision::restart) {
        give_up(outcome, decision, restarts);
        break;
      }
      voice_.say(outcome.words, log::LogLevel::error);
      voice_.say(text("starting all workers again (", restarts.done(), " of ", restarts.allowed(), ")",
                      outcome.held > 0    ? text(" from their state after iteration ", outcome.held, ", in memory")
                      : outcome.held == 0 ? " from their state in memory"
                                          : ""),
                 log::LogLevel::warning);
      outcome = start_all("");
    }
    const bool cut_short = outcome.kind == Outcome::Kind::stopped && outcome.code != 0;
    if (outcome.held >= 0 && !outcome.host_lost && (outcome.kind == Outcome::Kind::failed || cut_short)) {
      if (outcome.refused || outcome.code == worker::nothing_saved || !save_held(outcome, start))
        keep_held(outcome, folders);
    }
    return end(outcome);
  }

 private:
  /// The ranks of hosts that are lost go to spare hosts, else to the other hosts, if there are any.
  void leave_lost_hosts(Outcome& outcome, JobFolders& folders) {
    const auto& lost = outcome.lost_hosts;
    if (lost.empty()) return;
    sockets_.spares.hear(voice_, 1e9);
    for (auto h = lost.rbegin(); h != lost.rend(); ++h) {
      const auto name = job_.words_of(*h);
      const auto ranks = job_.ranks_on(*h);
      const auto place = replace_by_spares(*h, static_cast<int>(ranks.size()));
      if (place.empty() && !job_.remove_host(*h)) return;
      if (place.empty()) sockets_.hosts.erase(sockets_.hosts.begin() + static_cast<std::ptrdiff_t>(*h));
      job_.lost_hosts++;
      outcome.words += text("\nThe host ", name, " is left out; its ", ranks.size() == 1 ? "rank " : "ranks ",
                            ranks.front(), ranks.size() == 1 ? "" : text(" to ", ranks.back()), " will run on ",
                            place.empty() ? "the hosts that are left" : place);
    }
    outcome.host_lost = false;
    tell_places(folders);
  }

  /// Who they are, in words; empty if there is none.
  std::string replace_by_spares(std::size_t host, int ranks) {
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

  /// Every host's tsrun makes room for the state of the ranks that it has now.
  void tell_places(JobFolders& folders) {
    for (std::size_t h = 0; h < job_.hosts.size(); h++) {
      const PlaceMessage place = {job_.first_rank(h), job_.hosts[h].workers};
      if (job_.hosts[h].spare)
        welcome(h);
      else if (sockets_.hosts[h].open())
        send(sockets_.hosts[h], place);
      else
        folders.hold(place.first_rank, place.ranks);
    }
  }

  /// Those of this host, with memory for the state of its ranks; the others' tsrun make theirs.
  JobFolders make_folders() const {
    const worker::JobRecord record = {.id = job_.id,
                                      .command = lasting_words(words_, job_.options.program.size()),
                                      .program = job_.options.program,
                                      .folder = std::filesystem::current_path(),
                                      .workers = job_.workers,
                                      .start = starts_};
    for (std::size_t h = 0; h < job_.hosts.size(); h++)
      if (!sockets_.hosts[h].open()) return {record, job_.first_rank(h), job_.hosts[h].workers};
    return {record, -1, 0};  // the first of other hosts on this machine is 0
  }

  /// The job that most hosts have state of, when its processes were all killed: its id is ours from now on.
  void find_left_job() {
    std::map<std::string, std::pair<int, int>> left;  // number of hosts, last start
    for (const auto& host : job_.hosts) {
      if (host.left_job.empty()) continue;
      auto& [hosts, start] = left[host.left_job];
      hosts++;
      start = std::max(start, host.left_start);
    }
    const auto most =
        std::max_element(left.begin(), left.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == left.end() && !job_.options.left.empty())
      throw ConfigError("--left: no job with this command, of which all processes have ended, has state in memory");
    if (most == left.end()) return;
    adopted_ = true;
    job_.id = most->first;
    starts_ = most->second.second + 1;
  }

  /// --left: how its one start ended.
  Outcome only_left(Outcome outcome, JobFolders& folders) {
    const bool done = outcome.kind == Outcome::Kind::done, saves = job_.options.left == worker::order_to_save;
    if (!done || !saves) keep_held(outcome, folders);
    if (!done) return outcome;
    outcome.kind = Outcome::Kind::stopped;  // not the end of the work
    outcome.words = saves ? text("the state after iteration ", outcome.held, " is saved; ", outcome.resume)
                          : text("the state after iteration ", outcome.held, " is complete, and stays in memory");
    return outcome;
  }

  /// The state stays in memory, since no checkpoint has it.
  void keep_held(Outcome& outcome, JobFolders& folders) {
    kept_ = folders.keep();
    const auto after = outcome.held > 0 ? text(" after iteration ", outcome.held) : "";
    if (kept_)
      outcome.words += text("\nThe state", after, " is kept in ", folders.memory(),
                            outcome.refused ? ": with what it was given before," : ":",
                            " the same command continues from it; `tessera state clean ", job_.id, "` deletes it");
    else
      outcome.words += text("\nThe state", after, " was in memory of tsrun and is lost: /dev/shm is too small for it");
  }

  static void give_up(Outcome& outcome, Restarts::Decision decision, const Restarts& restarts) {
    if (outcome.held < 0) return;
    if (outcome.host_lost) {
      outcome.words += "\nThe state of its ranks is lost with it";
    } else if (decision == Restarts::Decision::poison) {
      outcome.code = Restarts::poison_step;
      outcome.words += text("\nIt is the same failure as before at the same step, ", outcome.held + 1,
                            ": another start would only repeat it");
    } else if (!outcome.refused && outcome.code != worker::nothing_saved && restarts.allowed() > 0) {
      outcome.code = Restarts::used_up;
      outcome.words += text("\nThe ", restarts.allowed(), " restarts of --max_restarts are used up");
    }
  }

  /// Lets the program write a checkpoint of the state that is in memory, since nobody continues with it. False if it
  /// could not.
  template <class Start>
  bool save_held(Outcome& outcome, const Start& start) {
    voice_.say(outcome.words, log::LogLevel::error);
    voice_.say("saving the state in memory as a checkpoint", log::LogLevel::warning);
    const auto saved = start(worker::order_to_save);
    const bool whole = saved.kind == Outcome::Kind::done && saved.held >= outcome.held;
    outcome.held = std::max(outcome.held, saved.held);
    if (whole) {
      outcome.words = text("the state after iteration ", outcome.held, " is saved: no step is lost");
    } else {
      outcome.words = text("the state after iteration ", outcome.held, " could not be saved: ", saved.words);
      if (outcome.code == 0 || outcome.code == Restarts::used_up) outcome.code = worker::nothing_saved;
    }
    if (!saved.resume.empty()) outcome.resume = saved.resume;
    return whole;
  }

  void gather() {
    const auto sizes = sizes_of(job_.options);
    const auto listed = listed_hosts(job_.options, sizes.local, sizes.total);
    const auto spares = listed_spares(job_.options, sizes.local, listed);
    const auto own_address = choose_address(listed, sizes.one_host);
    check_spares(listed, spares);
    const auto own = describe_this_host(job_.options, own_address);
    job_.machine = own.machine;
    job_.log_dir = own.log_dir;
    if (sizes.one_host || !listed.empty())
      if (!own.problem.empty()) throw ConfigError(own.problem);
    int total = sizes.total;
    if (listed.empty()) {
      job_.hosts = {own};
    } else {
      total = 0;
      for (const auto& host : listed) total += host.workers;
      put_listed_self(listed, own);
    }
    sockets_.hosts.resize(job_.hosts.size());
    // Where others have to come first, that is waited for in the background.
    if (!job_.options.join) go_on_alone(job_.log_dir);
    if (!job_.log_dir.empty()) voice_.keep_in(std::filesystem::path(job_.log_dir) / "scheduler.log");
    sockets_.signals = catch_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1});
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    Gathering gathering(job_, sockets_, voice_, total);
    start_listed(listed, false, gathering);
    start_listed(spares, true, gathering);
    if (!sizes.one_host && listed.empty())
      voice_.say(text("waiting at ", job_.head.address, ":", job_.head.port, " for the other hosts"));
    gathering.wait();
    find_left_job();
    for (std::size_t h = 0; h < job_.hosts.size(); h++) welcome(h);
  }

  /// This host's address. Listens for workers and hosts when nobody does yet: only at the interface of that address, and
  /// only at the loopback interface where all are on this host.
  std::string choose_address(const std::vector<ListedHost>& listed, bool one_host) {
    std::string address = resolve(job_.options.master_addr.empty() ? "127.0.0.1" : job_.options.master_addr);
    std::string other;  // the first other host's
    for (const auto& host : listed)
      if (const auto there = resolve(host.name); other.empty() && !is_own_address(there)) other = there;
    if (job_.options.master_addr.empty() && !other.empty()) address = address_towards(other);
    const bool alone = one_host || (!listed.empty() && other.empty());
    if (!sockets_.listener)
      sockets_.listener = listen_at({alone ? "127.0.0.1" : address, job_.options.master_port.value_or(0)});
    job_.head = local_endpoint(sockets_.listener);
    job_.master_addr = address;
    job_.master_port = job_.head.port;
    return address;
  }

  /// This host's part of --hosts, if it has one.
  void put_listed_self(const std::vector<ListedHost>& listed, const HostInfo& own) {
    for (std::size_t h = 0; h < listed.size(); h++) {
      if (!is_own_address(resolve(listed[h].name))) continue;
      if (!job_.hosts.empty())
        throw ConfigError(text("--hosts: ", listed[h].name, " is this host, which is listed already"));
      job_.hosts = {own};
      job_.hosts[0].node_rank = static_cast<int>(h);
      job_.hosts[0].workers = listed[h].workers;
    }
  }

  /// --spares: the job must survive the loss of a host, and the leading one is none.
  static void check_spares(const std::vector<ListedHost>& listed, const std::vector<ListedHost>& spares) {
    const auto is_own = [](const ListedHost& host) { return is_own_address(resolve(host.name)); };
    if (!spares.empty() && std::all_of(listed.begin(), listed.end(), is_own))
      throw ConfigError(
          "--spares: the only host of --hosts is this one, whose loss ends the job; list others in --hosts");
    for (const auto& spare : spares)
      if (is_own(spare))
        throw ConfigError(text("--spares: ", spare.name, " is this host, whose loss ends the job; list another one"));
  }

  /// The tsrun of every other listed host, through the agent; it is told the rest on its stdin.
  void start_listed(const std::vector<ListedHost>& listed, bool spare, Gathering& gathering) {
    Environment given;
    for (const auto& [name, value] : this_environment())
      if (name == "PATH" || name == "LD_LIBRARY_PATH" || name.rfind("TESSERA_", 0) == 0) given.emplace(name, value);
    for (std::size_t h = 0; h < listed.size(); h++) {
      if (is_own_address(resolve(listed[h].name))) continue;
      const OrdersMessage orders = {job_.secret,       words_, listed[h].name, static_cast<int>(h),
                                    listed[h].workers, spare,  given};
      gathering.expect(listed[h], start_through_agent(listed[h].name, encode(orders) + "\n"), spare);
    }
  }

  pid_t start_through_agent(const std::string& host, const std::string& input) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Error("pipe2 failed");
    const Descriptor reading(ends[0]), writing(ends[1]);
    Spawn agent;
    for (std::size_t begin = 0; begin < job_.options.agent.size();) {
      const auto end = std::min(job_.options.agent.find(' ', begin), job_.options.agent.size());
      if (end > begin) agent.words.push_back(job_.options.agent.substr(begin, end - begin));
      begin = end + 1;
    }
    agent.environment = this_environment();
    agent.words.at(0) = find_program(agent.words.at(0), agent.environment);
    agent.words.push_back(host);
    agent.words.push_back(text("cd ", quoted(std::filesystem::current_path()), " && exec ", quoted(own_path()),
                               " --as-host ", job_.head.address, ":", job_.head.port));
    agent.input = reading.number();
    const auto pid = spawn(agent);
    sockets_.agents.insert(pid);
    // A pipe holds 64 KiB; the words and a few variables are less.
    if (write(writing.number(), input.data(), input.size()) != static_cast<ssize_t>(input.size()))
      throw Error(text("the agent for ", host, " takes no input"));
    return pid;
  }

  /// A host has ranks from now on. One that was a spare may have been in the job before: its state is of an older step then.
  void welcome(std::size_t h) {
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

  void follow_logs(LogFollower& logs) const {
    for (std::size_t h = 0; h < job_.hosts.size(); h++) {
      if (sockets_.hosts[h].open()) continue;
      for (const int local : tailed(job_.options.join ? job_.options.tail : "", job_.hosts[h].workers)) {
        const int rank = job_.first_rank(h) + local;
        logs.add(log_of(job_.hosts[h], rank), job_.workers > 1 ? text("[", rank, "] ") : "");
      }
    }
  }

  std::string beginning() {
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

  std::string last_words(const Outcome& outcome) const {
    if (outcome.kind == Outcome::Kind::done) return text("all ", job_.workers, " workers are done");
    if (outcome.kind == Outcome::Kind::stopped || outcome.refused) return outcome.words;
    return text(outcome.words, "\nLogs: ", job_.log_dir, outcome.resume.empty() ? "" : "; ", outcome.resume);
  }

  int end(const Outcome& outcome) {
    for (auto& host : sockets_.hosts) {
      send(host, EndMessage{outcome.code, last_words(outcome), kept_});
      host.flush(1);
    }
    for (auto& spare : sockets_.spares.all()) {
      send(spare.connection, EndMessage{outcome.code, last_words(outcome), false});
      spare.connection.flush(1);
    }
    wait_for_hosts();
    voice_.say(last_words(outcome), outcome.code == 0 ? log::LogLevel::info : log::LogLevel::error);
    return outcome.code;
  }

  /// What they still show comes before our last words.
  void wait_for_hosts() {
    for (const double until = now() + 2; now() < until;) {
      bool any = false;
      for (auto& host : sockets_.hosts) {
        receive<FromHostMessage>(host);
        any = any || host.open();
      }
      if (!any) break;
      usleep(10000);
    }
    end_descendants();
  }

  Job job_;
  std::vector<std::string> words_;
  HeadSockets sockets_;
  Voice voice_;
  bool adopted_ = false;  ///< the state of an earlier job
  bool kept_ = false;     ///< the state stays after the end
  int starts_ = 0;        ///< of the workers so far
};

}  // namespace

int lead(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret,
         Descriptor listener) {
  return Head(options, words, secret).run(std::move(listener));
}

}  // namespace tessera::tsrun
