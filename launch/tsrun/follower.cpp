#include "launch/tsrun/follower.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>

#include "framework/worker/stop_signals.h"
#include "launch/tsrun/guard.h"
#include "launch/tsrun/handshake.h"
#include "launch/tsrun/job.h"
#include "launch/tsrun/log_file.h"
#include "launch/tsrun/logger.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {
namespace {

class Follower {
 public:
  Follower(const LaunchOptions& options, Connection leader, std::string secret, std::string called)
      : options_(options),
        secret_(std::move(secret)),
        leader_(std::move(leader)),
        leader_words_(text(peer_endpoint(leader_.socket()).address)),
        called_(std::move(called)) {}

  int run(int node_rank, int workers) {
    info_ = describe_this_host(options_, local_endpoint(leader_.socket()).address);
    if (workers > 0) {
      info_.node_rank = node_rank;
      info_.workers = workers;
    }
    if (called_.empty() && !options_.join && info_.problem.empty()) go_on_alone(info_.log_dir);
    signals_ = catch_stop_signals();
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    info_.process = getpid();  // it may continue in the background
    send(leader_, HostMessage{info_, called_});
    while (!code_ && leader_.open() && !leader_is_lost()) poll_once();
    if (!code_ && !leader_.open() && leader_.problem().empty() && folders_) outlive();
    end_descendants();
    logs_.finish();
    if (code_) return end();
    if (options_.spare && !heard_ && !asked_ && leader_.problem().empty()) return spare_was_dropped;
    reporter_.say(text("the leading tsrun, on ", leader_words_, ", ",
                       leader_.open() ? text("has not responded for ", lease_, " s; check cable, switch and power")
                       : leader_.problem().empty() ? "has closed the connection"
                                                   : "sent " + leader_.problem() + " (is it of another version?)",
                       folders_ ? "; all workers here are stopped" : "; this spare host ends"),
                  log::LogLevel::error);
    return 1;
  }

 private:
  bool leader_is_lost() {
    if (!heard_ || !leader_.is_silent_for(options_.host_lease)) return false;
    lease_ = silence_allowed(options_.host_lease, folders_ ? process_of_leader(folders_->memory()) : 0);
    return leader_.is_silent_for(lease_);
  }

  /// The leader was killed: workers that keep their state in memory continue for the lease. Those that the leader's
  /// mpirun has started, on the same machine, are the guard's, which then also decides on the state.
  void outlive() {
    std::error_code absent;
    if (!std::filesystem::exists(worker::kept_file(folders_->memory()), absent)) return;
    if (!workers_below().empty())
      reporter_.say(text("the leading tsrun, on ", leader_words_, ", was killed; the workers here train on for ",
                         options_.lease, " s, then they save and end"),
                    log::LogLevel::warning);
    outlive_leader(place_.ranks, options_.longest_without_leader(), options_.stop_time_out, [&] { logs_.show(); });
    const bool guarded = folders_->shared();
    if (all_saved(folders_->memory(), place_.first_rank, place_.ranks)) return;
    if (!std::filesystem::exists(folders_->memory(), absent)) return;  // the guard has deleted it
    if (folders_->keep() && !guarded) reporter_.say(how_to_adopt(id_), log::LogLevel::warning);
  }

  void poll_once() {
    pollfd watched[2] = {{leader_.number(), static_cast<short>(POLLIN | (leader_.wants_to_write() ? POLLOUT : 0)), 0},
                         {signals_.number(), POLLIN, 0}};
    wait_for(watched, .1);
    leader_.write_more();
    for (const auto& message : receive<ToHostMessage>(leader_))
      std::visit([this](const auto& m) { handle(m); }, message);
    handle_signals();
    logs_.show();
    if (heard_ && real_now() - last_heartbeat_ > heartbeat_seconds) {
      last_heartbeat_ = real_now();
      send(leader_, HeartbeatMessage());
    }
  }

  void handle(const HeartbeatMessage&) {}
  void handle(const StopMessage&) {
    end_descendants();
    // A leader that shares the folders clears them itself, and may already use them for the next start.
    if (folders_ && !folders_->shared()) folders_->clear();
  }
  void handle(const RefusedMessage& refused) { code_ = refused.code, words_ = refused.words; }
  void handle(const EndMessage& end) {
    code_ = end.code, words_ = end.words;
    if (end.keep && folders_) folders_->keep();
  }

  void handle(const ListenMessage& listen) {
    try {
      reached_ = listen_at({info_.address, 0});
    } catch (const ConfigError&) {
      reached_.close();
    }
    send(leader_, ListeningMessage{listen.token, reached_ ? local_endpoint(reached_).port : 0});
  }

  void handle(const TryMessage& all) { send(leader_, TriedMessage{unreachable(all.targets)}); }

  void handle(const WaitMessage& wait) {
    heard_ = true;
    reached_.close();
    folders_.reset();  // of a host that had ranks before
    if (called_.empty()) reporter_.say(text(wait.words, "; the leading tsrun is on ", leader_words_));
  }

  void handle(const WelcomeMessage& welcome) {
    heard_ = true;
    reached_.close();
    alias_ = welcome.alias;
    key_ = workers_key(secret_, welcome.salt);
    id_ = welcome.id;
    info_.workers = welcome.ranks;
    place_ = {welcome.first_rank, welcome.ranks};
    // A folder that another host of the job uses has the state of its ranks; what is too old there is not continued.
    if (welcome.forget) worker::SharedFolder::remove_unless_used(worker::job_folder(id_));
    folders_.emplace(worker::JobRecord{.id = welcome.id,
                                       .program = options_.program,
                                       .folder = info_.folder,
                                       .workers = welcome.workers,
                                       .start = info_.left_job == id_ ? info_.left_start + 1 : 0},
                     welcome.first_rank, info_.workers);
    const int first = welcome.first_rank;
    if (called_.empty()) reporter_.keep_in(std::filesystem::path(info_.log_dir) / "scheduler.log");
    if (called_.empty())
      reporter_.say(
          text("ranks ", first, " to ", first + info_.workers - 1, " on ", info_.host, " (", info_.interface, " ",
               info_.address, "), led by ", leader_words_, "; logs in ", info_.log_dir,
               first > 0 ? text("; rank 0, which prints the iteration lines, is shown by the tsrun on ", leader_words_)
                         : ""));
    const auto locals = tailed(options_.join ? options_.tail : "", info_.workers);
    const bool several = welcome.workers > 1;
    for (const int local : locals)
      logs_.add(log_of(info_, first + local), several ? text("[", first + local, "] ") : "");
  }

  void handle(const PlaceMessage& place) {
    if (folders_ && place.forget) folders_->forget(place.workers);
    if (folders_) folders_->hold(place.first_rank, place.ranks);
    info_.workers = place.ranks;
    place_ = place;
  }

  /// Starts MPI's daemon on this host with the command of the leader's mpirun.
  void handle(const RunMessage& run) {
    Spawn daemon;
    const auto library = loopback_library();
    const bool one_interface = !library.empty() && library.find_first_of(" :'") == std::string::npos;
    // Not in the environment of the shell: the library removes itself from LD_PRELOAD when it is loaded.
    const auto preload = text("export LD_PRELOAD='", library, "'${LD_PRELOAD:+:$LD_PRELOAD}; ");
    daemon.words = {"/bin/sh", "-c", (one_interface ? preload : "") + run.words};
    daemon.environment = free_of_launchers(info_.environment);
    daemon.environment["TSRUN_KEY"] = key_;  // for the supervisors that it starts
    daemon.environment["TSRUN_LISTEN"] = info_.address;
    daemon.leaves_terminal = daemon.deaf = true;
    daemon.host_name = alias_;
    try {
      spawn(daemon);
    } catch (const std::exception& error) {
      send(leader_, FailedMessage{error.what()});
    }
  }

  void handle_signals() {
    for (const int s : caught(signals_)) {
      if (s == SIGCHLD) continue;
      if (asked_ && !worker::ends_at_once(s)) continue;
      if (asked_) code_ = 128 + s;
      asked_ = true;
      send(leader_, SignalMessage{s});
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  int end() {
    if (!called_.empty()) return *code_;
    if (words_.empty() && *code_ == 2)
      reporter_.say(text("the job was refused; the tsrun on ", leader_words_, " says why"), log::LogLevel::error);
    else if (!words_.empty())
      reporter_.say(words_, *code_ == 0 ? log::LogLevel::info : log::LogLevel::error);
    return *code_;
  }

  const LaunchOptions& options_;
  const std::string secret_;
  Connection leader_;
  std::string key_;  ///< key of the workers (secret.h)
  std::string leader_words_, called_, alias_, words_, id_;
  PlaceMessage place_;
  HostInfo info_;
  Descriptor signals_, reached_;
  std::optional<JobFolders> folders_;
  Reporter reporter_;
  LogFollower logs_{Screen::of_process(),
                    [this](const std::string& words) { reporter_.say(words, log::LogLevel::warning); }};
  bool heard_ = false;  ///< the leader has answered and sends heartbeats from now on
  bool asked_ = false;
  std::optional<int> code_;
  double last_heartbeat_ = 0;
  double lease_ = 0;  ///< seconds without a message from the leader after which it was taken for lost
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int follow(const LaunchOptions& options, Connection leader, const std::string& secret, const std::string& called,
           int node_rank, int workers) {
  return Follower(options, std::move(leader), secret, called).run(node_rank, workers);
}

int run_agent(const std::vector<std::string>& words) {
  std::size_t next = 0;
  while (next < words.size() && words[next][0] == '-') next++;  // skip options of a remote shell
  if (next + 1 >= words.size()) return 2;
  std::string command;
  for (std::size_t i = next + 1; i < words.size(); i++) command += (command.empty() ? "" : " ") + words[i];
  Failure failure;
  Connection leader =
      find_leader(endpoint_of(variable("TSRUN_LEADER")), Role::worker, variable("TSRUN_KEY"), 10, failure);
  if (!leader.open()) throw Error(text("agent for ", words[next], ": no leading tsrun: ", failure.words));
  send(leader, AgentMessage{words[next], command});
  leader.flush(5);
  while (leader.open()) {
    pollfd watched = {leader.number(), POLLIN, 0};
    poll(&watched, 1, -1);
    leader.fill();
    if (leader.buffered() > 0) leader.close();
  }
  return 0;
}

int run_listed_host(const std::string& leader) {
  std::string line;
  std::getline(std::cin, line);
  std::string problem;
  const auto parsed = parse<InputMessage>(line, problem);
  if (!parsed) throw Error(text("--as-host is for tsrun itself; its input is ", problem));
  const auto& orders = std::get<OrdersMessage>(*parsed);
  for (const auto& [name, value] : orders.environment) setenv(name.c_str(), value.c_str(), 1);
  auto options = read_options(orders.words, this_environment());
  options.spare = orders.spare;
  Failure failure;
  auto connection = find_leader(endpoint_of(leader), Role::host, orders.secret, 10, failure);
  if (!connection.open()) {
    logger.error(text("tsrun on ", host_name(), ": cannot reach ", leader, ": ", failure.words));
    return failure.kind == Failure::Kind::secret ? 2 : 1;
  }
  const int code =
      follow(options, std::move(connection), orders.secret, orders.called, orders.node_rank, orders.workers);
  return code == spare_was_dropped ? 1 : code;
}

}  // namespace tessera::tsrun
