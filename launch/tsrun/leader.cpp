#include "launch/tsrun/leader.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "framework/base/run_event.h"
#include "framework/worker/launch_link.h"
#include "launch/tsrun/descriptors.h"
#include "launch/tsrun/placement.h"
#include "launch/tsrun/rendezvous.h"
#include "launch/tsrun/restarts.h"
#include "launch/tsrun/run_folder.h"

namespace tessera::tsrun {
namespace {

/// The command with which a job is continued: without --left and its value, which come before the last `program` words.
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

/// The address of this host on the route to `host`; no packet is sent.
std::string address_towards(const std::string& host) {
  const Endpoint there = {resolve(host), 9};
  const Descriptor socket = datagram_towards(there);
  return local_endpoint(socket).address;
}

class Leader {
 public:
  Leader(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret)
      : words_(words) {
    job_.options = options;
    job_.id = random_letters(5);
    job_.secret = secret;
    job_.salt = random_letters(32);
    job_.key = workers_key(secret, job_.salt);
  }

  int run(Descriptor listener) {
    sockets_.listener = std::move(listener);
    if (job_.options.shrink) sockets_.call_hosts = [this] { agents_.call_lost(); };
    gather();
    auto folders = make_folders();
    if (adopted_)
      reporter_.say(text("continuing from the state in ", folders.memory(), ", which a tsrun that was killed left"),
                    log::LogLevel::warning);
    for (const auto& note : job_.options.notes) reporter_.say(note);
    reporter_.say(placement_.words());
    LogFollower logs(Screen::of_process(),
                     [this](const std::string& words) { reporter_.say(words, log::LogLevel::warning); });
    follow_logs(logs);
    const auto start = [&](const char* order) {
      folders.clear();
      folders.record_start(starts_);
      auto outcome = Attempt(job_, folders, starts_++, order, sockets_, reporter_, logs).run();
      tell_failure(outcome);
      return outcome;
    };
    Restarts restarts(job_.options.max_restarts, adopted_ ? 0 : -1, job_.options.restart_window);
    std::vector<int> possible;  // Outcome::possible
    bool can_shrink = true;     // false: the state could not be saved for another number of workers
    const auto start_all = [&](const char* order) {
      auto outcome = start(order);
      restarts.carry_held(outcome);
      std::error_code absent;  // if all supervisors that could report it were killed with their programs
      if (outcome.held < 0 && std::filesystem::exists(worker::kept_file(folders.memory()), absent)) outcome.held = 0;
      if (!outcome.possible.empty()) possible = outcome.possible;
      placement_.leave_lost_hosts(outcome, folders);
      return outcome;
    };
    if (!job_.options.left.empty()) return end(only_left(start_all(job_.options.left.c_str()), folders), logs);
    auto outcome = start_all("");
    while (!outcome.asked && (outcome.kind == Outcome::Kind::failed || outcome.regroups)) {
      if (outcome.regroups) {
        placement_.regroup(most_ranks(possible, std::min(placement_.room(), job_.full_workers)), folders);
        outcome = start_all("");
        continue;
      }
      const auto decision = restarts.decide(outcome, real_now());
      if (decision != Restarts::Decision::restart) {
        give_up(outcome, decision, restarts);
        break;
      }
      reporter_.say(outcome.words, log::LogLevel::error);
      if (const int fewer = can_shrink ? placement_.fewer_workers(possible) : 0; fewer > 0) {
        reporter_.say(text("the ", job_.workers, " workers save their state, then ", fewer, " continue"),
                      log::LogLevel::warning);
        outcome = start_all(worker::order_to_hand_over);
        if (outcome.asked && outcome.kind == Outcome::Kind::done) outcome = handed_over(std::move(outcome));
        if (outcome.asked || outcome.kind == Outcome::Kind::stopped) break;
        if (outcome.kind == Outcome::Kind::failed && outcome.code != worker::nothing_saved) continue;
        can_shrink = outcome.kind == Outcome::Kind::done;
        if (can_shrink)
          placement_.regroup(fewer, folders);
        else
          reporter_.say(text("the state could not be saved: ", outcome.words,
                             "\nAll workers continue on the hosts that are left"),
                        log::LogLevel::error);
        outcome = start_all("");
        continue;
      }
      reporter_.say(text("starting all workers again (", restarts.done(), " of ", restarts.allowed(), ")",
                         outcome.held > 0    ? text(" from their state after iteration ", outcome.held, ", in memory")
                         : outcome.held == 0 ? " from their state in memory"
                                             : ""),
                    log::LogLevel::warning);
      tell("restart", outcome, {{"attempt", restarts.done()}, {"ranks", job_.workers}, {"reason", outcome.cause}});
      outcome = start_all("");
    }
    const bool cut_short = outcome.kind == Outcome::Kind::stopped && outcome.code != 0;
    if (outcome.held >= 0 && !outcome.host_lost && (outcome.kind == Outcome::Kind::failed || cut_short)) {
      if (outcome.refused || outcome.code == worker::nothing_saved || !save_held(outcome, start))
        keep_held(outcome, folders);
    }
    return end(outcome, logs);
  }

 private:
  /// Creates the folders of this host, with memory for the state of its ranks; the tsrun of each other host creates its
  /// own.
  JobFolders make_folders() const {
    const worker::JobRecord record = {.id = job_.id,
                                      .command = lasting_words(words_, job_.options.program.size()),
                                      .program = job_.options.program,
                                      .folder = std::filesystem::current_path(),
                                      .workers = job_.workers,
                                      .start = starts_};
    for (std::size_t h = 0; h < job_.hosts.size(); h++)
      if (!sockets_.hosts[h].open()) return {record, job_.first_rank(h), job_.hosts[h].workers};
    return {record, -1, 0};  // -1: the first rank of other hosts on this machine is 0
  }

  /// Looks for the job whose processes were all killed and of which most hosts have state, and takes over its id.
  void find_left_job() {
    std::map<std::string, std::pair<int, int>> left;  // number of hosts, last start
    for (const auto& host : job_.hosts) {
      if (host.left_job.empty()) continue;
      if (host.left_workers != job_.workers) {  // with --hosts a host does not know the number of workers
        reporter_.say(text("on ", host.host, " the state of a job with this command and ", host.left_workers,
                           " workers is left: `tessera state clean ", host.left_job, "` deletes it there"),
                      log::LogLevel::warning);
        continue;
      }
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

  /// Completes the outcome of the only start of --left.
  Outcome only_left(Outcome outcome, JobFolders& folders) {
    const bool done = outcome.kind == Outcome::Kind::done, saves = job_.options.left == worker::order_to_save;
    if (!done || !saves) keep_held(outcome, folders);
    if (!done) return outcome;
    outcome.kind = Outcome::Kind::stopped;  // the work itself is not done
    outcome.words = saves ? text("the state after iteration ", outcome.held, " is saved; ", outcome.resume)
                          : text("the state after iteration ", outcome.held, " is complete, and stays in memory");
    return outcome;
  }

  /// Completes the outcome of workers that saved their state for another number of workers when a signal asked the job
  /// to stop: nobody continues, and nothing is lost.
  static Outcome handed_over(Outcome outcome) {
    outcome.kind = Outcome::Kind::stopped;
    outcome.words = text("stopped by a signal", outcome.resume.empty() ? "" : "; ", outcome.resume);
    return outcome;
  }

  /// Keeps the state in memory, because no checkpoint contains it.
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

  void give_up(Outcome& outcome, Restarts::Decision decision, const Restarts& restarts) const {
    if (restarts.too_often())
      outcome.words += text("\nThere were ", restarts.done(), " restarts within the ", *job_.options.restart_window,
                            " s of --restart_window, and --max_restarts allows ", restarts.allowed());
    if (outcome.held < 0) return;
    if (outcome.host_lost) {
      outcome.words += "\nThe state of its ranks is lost with it";
    } else if (decision == Restarts::Decision::poison) {
      outcome.code = Restarts::poison_step;
      outcome.words += text("\nIt is the same failure as before at the same step, ", outcome.held + 1,
                            ": another start would only repeat it");
    } else if (!outcome.refused && outcome.code != worker::nothing_saved && restarts.allowed() > 0) {
      outcome.code = Restarts::used_up;
      if (!restarts.too_often())
        outcome.words += text("\nThe ", restarts.allowed(), " restarts of --max_restarts are used up");
    }
  }

  /// Starts the program to write a checkpoint of the state that is in memory, because no start continues with it.
  /// Returns false if it could not.
  template <class Start>
  bool save_held(Outcome& outcome, const Start& start) {
    reporter_.say(outcome.words, log::LogLevel::error);
    reporter_.say("saving the state in memory as a checkpoint", log::LogLevel::warning);
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

  /// Appends an event to the run folder, if the program trains and this start has taken the folder over: it has then
  /// told how to resume.
  void tell(const char* event, const Outcome& outcome, const Json& facts) {
    if (run_folder_.empty() || outcome.resume.empty()) return;
    // A state of 0 may be one of an iteration that nobody reported.
    const int iteration = outcome.held > 0 ? outcome.held : std::max(outcome.held, outcome.completed);
    const auto problem =
        append_event(run_folder_, event, iteration >= 0 ? std::optional<std::int64_t>(iteration) : std::nullopt, facts);
    if (!problem.empty()) reporter_.note(problem);
  }

  void tell_failure(const Outcome& outcome) {
    if (outcome.kind != Outcome::Kind::failed) return;
    Json facts = {{"message", outcome.words}};
    if (outcome.rank >= 0) facts.update({{"rank", outcome.rank}, {"host", outcome.host}});
    tell("failed", outcome, facts);
  }

  /// The folder of the program's run; empty if it has none. A recipe that cannot be read is reported by the workers.
  std::filesystem::path find_run_folder(const HostInfo& own) const {
    if (!trains(own.program)) return {};
    if (job_.options.log_dir.empty()) return std::filesystem::path(own.log_dir).parent_path();  // default_log_folder
    try {
      return run_folder_of(own.program);
    } catch (const Error&) {
      return {};
    }
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
    run_folder_ = find_run_folder(own);
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
    const int hosts = listed.empty() ? total / std::max(1, sizes.local) : static_cast<int>(listed.size());
    ensure_descriptors(job_.hosts.empty() ? 0 : job_.hosts[0].workers, total, hosts + static_cast<int>(spares.size()));
    sockets_.hosts.resize(job_.hosts.size());
    // If other hosts must connect first, the background process waits for them.
    if (!job_.options.join) go_on_alone(job_.log_dir);
    if (!job_.log_dir.empty()) reporter_.keep_in(std::filesystem::path(job_.log_dir) / "scheduler.log");
    sockets_.signals = catch_stop_signals();
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    Rendezvous gathering(job_, sockets_, reporter_, total);
    start_listed(listed, false, gathering);
    start_listed(spares, true, gathering);
    if (!sizes.one_host && listed.empty())
      reporter_.say(text("waiting at ", words_of(job_.leader), " for the other hosts"));
    gathering.wait();
    find_left_job();
    for (std::size_t h = 0; h < job_.hosts.size(); h++) placement_.welcome(h);
  }

  /// Returns this host's address, and listens for workers and hosts unless a listener is open: only at the interface of
  /// that address, and only at the loopback interface if all workers are on this host.
  std::string choose_address(const std::vector<ListedHost>& listed, bool one_host) {
    std::string address = resolve(job_.options.master_addr.empty() ? "127.0.0.1" : job_.options.master_addr);
    std::string other;  // the first host of the list that is not this one
    for (const auto& host : listed)
      if (const auto there = resolve(host.host()); other.empty() && !is_own_address(there)) other = there;
    if (job_.options.master_addr.empty() && !other.empty()) address = address_towards(other);
    const bool alone = one_host || (!listed.empty() && other.empty());
    if (!sockets_.listener)
      sockets_.listener = listen_at({alone ? "127.0.0.1" : address, job_.options.master_port.value_or(0)});
    job_.leader = local_endpoint(sockets_.listener);
    job_.master_addr = address;
    job_.master_port = job_.leader.port;
    return address;
  }

  /// Adds this host to the job if --hosts lists it.
  void put_listed_self(const std::vector<ListedHost>& listed, const HostInfo& own) {
    for (std::size_t h = 0; h < listed.size(); h++) {
      if (!is_own_address(resolve(listed[h].host()))) continue;
      if (!job_.hosts.empty())
        throw ConfigError(text("--hosts: ", listed[h].name, " is this host, which is listed already"));
      job_.hosts = {own};
      job_.hosts[0].node_rank = static_cast<int>(h);
      job_.hosts[0].workers = listed[h].workers;
    }
  }

  /// --spares: at least one other host must have ranks, and this host cannot be a spare, because its loss ends the job.
  static void check_spares(const std::vector<ListedHost>& listed, const std::vector<ListedHost>& spares) {
    const auto is_own = [](const ListedHost& host) { return is_own_address(resolve(host.host())); };
    if (!spares.empty() && std::all_of(listed.begin(), listed.end(), is_own))
      throw ConfigError(
          "--spares: the only host of --hosts is this one, whose loss ends the job; list others in --hosts");
    for (const auto& spare : spares)
      if (is_own(spare))
        throw ConfigError(text("--spares: ", spare.name, " is this host, whose loss ends the job; list another one"));
  }

  /// Starts tsrun on every other listed host through the agent; it reads the rest from standard input.
  void start_listed(const std::vector<ListedHost>& listed, bool spare, Rendezvous& gathering) {
    for (std::size_t h = 0; h < listed.size(); h++) {
      if (is_own_address(resolve(listed[h].host()))) continue;
      gathering.expect(listed[h], agents_.start(listed[h], static_cast<int>(h), spare), spare);
    }
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

  std::string last_words(const Outcome& outcome) const {
    if (outcome.kind == Outcome::Kind::done) return text("all ", job_.workers, " workers are done");
    if (outcome.kind == Outcome::Kind::stopped || outcome.refused) return outcome.words;
    // The same command continues from the state that is kept, as outcome.words says, not from the newest checkpoint.
    const auto resume = outcome.resume.empty() || kept_ ? "" : "; " + outcome.resume;
    return text(outcome.words, "\nLogs: ", job_.log_dir, resume);
  }

  int end(const Outcome& outcome, LogFollower& logs) {
    for (auto& host : sockets_.hosts) {
      send(host, EndMessage{outcome.code, last_words(outcome), kept_});
      host.flush(1);
    }
    for (auto& spare : sockets_.spares.all()) {
      send(spare.connection, EndMessage{outcome.code, last_words(outcome), false});
      spare.connection.flush(1);
    }
    wait_for_hosts();
    logs.finish();
    reporter_.say(last_words(outcome), outcome.code == 0 ? log::LogLevel::info : log::LogLevel::error);
    return outcome.code;
  }

  /// Waits until the hosts have shown their last output, so that it comes before the leader's last message.
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
  LeaderSockets sockets_;
  Reporter reporter_;
  Agents agents_{job_, sockets_, reporter_, words_};
  Placement placement_{job_, sockets_, agents_, reporter_};
  std::filesystem::path run_folder_;
  bool adopted_ = false;  ///< continues from the state of an earlier job
  bool kept_ = false;     ///< the state stays in memory after the end
  int starts_ = 0;        ///< number of starts of the workers so far
};

}  // namespace

int lead(const LaunchOptions& options, const std::vector<std::string>& words, const std::string& secret,
         Descriptor listener) {
  return Leader(options, words, secret).run(std::move(listener));
}

}  // namespace tessera::tsrun
