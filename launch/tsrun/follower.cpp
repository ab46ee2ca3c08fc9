#include "launch/tsrun/follower.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>

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
  Follower(const LaunchOptions& options, Connection head, std::string secret, std::string called)
      : options_(options),
        secret_(std::move(secret)),
        head_(std::move(head)),
        head_words_(text(peer_endpoint(head_.socket()).address)),
        called_(std::move(called)) {}

  int run(int node_rank, int workers) {
    info_ = describe_this_host(options_, local_endpoint(head_.socket()).address);
    if (workers > 0) {
      info_.node_rank = node_rank;
      info_.workers = workers;
    }
    if (called_.empty() && !options_.join && info_.problem.empty()) go_on_alone(info_.log_dir);
    signals_ = catch_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1});
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    send(head_, HostMessage{info_, called_});
    while (!code_ && head_.open() && head_.silence() < (heard_ ? options_.host_lease : 1e9)) turn();
    if (!code_ && !head_.open() && head_.problem().empty() && folders_) outlive();
    end_descendants();
    logs_.finish();
    if (code_) return end();
    if (options_.spare && !heard_ && !asked_ && head_.problem().empty()) return spare_was_dropped;
    voice_.say(text("the tsrun that leads, on ", head_words_, ", ",
                    head_.open() ? text("has not been heard for ", options_.host_lease, " s: cable, switch or power?")
                    : head_.problem().empty() ? "has gone away"
                                              : "sent " + head_.problem() + " (is it of another version?)",
                    folders_ ? "; all workers here are stopped" : "; this spare host ends"),
               log::LogLevel::error);
    return 1;
  }

 private:
  /// The head was killed: workers that keep their state go on for a while.
  void outlive() {
    std::error_code absent;
    if (!std::filesystem::exists(worker::kept_file(folders_->memory()), absent)) return;
    voice_.say(text("the tsrun that leads, on ", head_words_, ", was killed; the workers here train on for ",
                    options_.lease, " s, then they save and end"),
               log::LogLevel::warning);
    outlive_head(options_.lease + options_.longest_save(), options_.stop_time_out, [&] { logs_.show(); });
    if (all_saved(folders_->memory(), place_.first_rank, place_.ranks)) return;
    if (!std::filesystem::exists(folders_->memory(), absent)) return;  // deleted by the guard of a head on this machine
    if (folders_->keep()) voice_.say(how_to_adopt(id_), log::LogLevel::warning);
  }

  void turn() {
    pollfd watched[2] = {{head_.number(), static_cast<short>(POLLIN | (head_.wants_to_write() ? POLLOUT : 0)), 0},
                         {signals_.number(), POLLIN, 0}};
    poll(watched, 2, 100);
    head_.write_more();
    for (const auto& message : receive<ToHostMessage>(head_)) std::visit([this](const auto& m) { obey(m); }, message);
    obey_signals();
    logs_.show();
    if (heard_ && now() - last_beat_ > beat_seconds) {
      last_beat_ = now();
      send(head_, BeatMessage());
    }
  }

  void obey(const BeatMessage&) {}
  void obey(const StopMessage&) {
    end_descendants();
    if (folders_) folders_->clear();
  }
  void obey(const RefusedMessage& refused) { code_ = refused.code, words_ = refused.words; }
  void obey(const EndMessage& end) {
    code_ = end.code, words_ = end.words;
    if (end.keep && folders_) folders_->keep();
  }

  void obey(const ListenMessage& listen) {
    try {
      reached_ = listen_at({info_.address, 0});
    } catch (const ConfigError&) {
      reached_.close();
    }
    send(head_, ListeningMessage{listen.token, reached_ ? local_endpoint(reached_).port : 0});
  }

  void obey(const TryMessage& all) { send(head_, TriedMessage{unreachable(all.targets)}); }

  void obey(const WaitMessage& wait) {
    heard_ = true;
    reached_.close();
    folders_.reset();  // of a host that had ranks before
    if (called_.empty()) voice_.say(text(wait.words, "; the tsrun that leads is on ", head_words_));
  }

  void obey(const WelcomeMessage& welcome) {
    heard_ = true;
    reached_.close();
    alias_ = welcome.alias;
    key_ = workers_key(secret_, welcome.salt);
    id_ = welcome.id;
    info_.workers = welcome.ranks;
    place_ = {welcome.first_rank, welcome.ranks};
    if (welcome.forget) delete_folder(worker::job_folder(id_));
    folders_.emplace(worker::JobRecord{.id = welcome.id,
                                       .program = options_.program,
                                       .folder = info_.folder,
                                       .workers = welcome.workers,
                                       .start = info_.left_job == id_ ? info_.left_start + 1 : 0},
                     welcome.first_rank, info_.workers);
    const int first = welcome.first_rank;
    if (called_.empty()) voice_.keep_in(std::filesystem::path(info_.log_dir) / "scheduler.log");
    if (called_.empty())
      voice_.say(text("ranks ", first, " to ", first + info_.workers - 1, " on ", info_.host, " (", info_.interface,
                      " ", info_.address, "), led by ", head_words_, "; logs in ", info_.log_dir));
    const auto locals = tailed(options_.join ? options_.tail : "", info_.workers);
    const bool several = welcome.workers > 1;
    for (const int local : locals)
      logs_.add(log_of(info_, first + local), several ? text("[", first + local, "] ") : "");
  }

  void obey(const PlaceMessage& place) {
    if (folders_ && place.forget) folders_->forget(place.workers);
    if (folders_) folders_->hold(place.first_rank, place.ranks);
    info_.workers = place.ranks;
    place_ = place;
  }

  /// The daemon of MPI on this host, as the head's mpirun words it.
  void obey(const RunMessage& run) {
    Spawn daemon;
    const auto library = loopback_library();
    const bool one_interface = !library.empty() && library.find_first_of(" :'") == std::string::npos;
    // Not in the environment of the shell: the library leaves that when it is loaded.
    const auto preload = text("export LD_PRELOAD='", library, "'${LD_PRELOAD:+:$LD_PRELOAD}; ");
    daemon.words = {"/bin/sh", "-c", (one_interface ? preload : "") + run.words};
    daemon.environment = free_of_launchers(info_.environment);
    daemon.environment["TSRUN_KEY"] = key_;  // for the workers that it starts
    daemon.environment["TSRUN_LISTEN"] = info_.address;
    daemon.session = daemon.deaf = true;
    daemon.host_name = alias_;
    try {
      spawn(daemon);
    } catch (const std::exception& error) {
      send(head_, FailedMessage{error.what()});
    }
  }

  void obey_signals() {
    for (const int s : caught(signals_)) {
      if (s == SIGCHLD) continue;
      if (asked_) code_ = 128 + s;
      asked_ = true;
      send(head_, SignalMessage{s});
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  int end() {
    if (!called_.empty()) return *code_;
    if (words_.empty() && *code_ == 2)
      voice_.say(text("the job was refused; the tsrun on ", head_words_, " says why"), log::LogLevel::error);
    else if (!words_.empty())
      voice_.say(words_, *code_ == 0 ? log::LogLevel::info : log::LogLevel::error);
    return *code_;
  }

  const LaunchOptions& options_;
  const std::string secret_;
  Connection head_;
  std::string key_;  ///< of the workers
  std::string head_words_, called_, alias_, words_, id_;
  PlaceMessage place_;
  HostInfo info_;
  Descriptor signals_, reached_;
  std::optional<JobFolders> folders_;
  Voice voice_;
  LogFollower logs_{Screen::of_process(),
                    [this](const std::string& words) { voice_.say(words, log::LogLevel::warning); }};
  bool heard_ = false;  ///< the head sends beats from now on
  bool asked_ = false;
  std::optional<int> code_;
  double last_beat_ = 0;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Endpoint endpoint_of(const std::string& words) {
  const auto colon = words.rfind(':');
  must(colon != std::string::npos, "an endpoint is ADDRESS:PORT");
  return {words.substr(0, colon), std::stoi(words.substr(colon + 1))};
}

}  // namespace

int follow(const LaunchOptions& options, Connection head, const std::string& secret, const std::string& called,
           int node_rank, int workers) {
  return Follower(options, std::move(head), secret, called).run(node_rank, workers);
}

int run_agent(const std::vector<std::string>& words) {
  std::size_t next = 0;
  while (next < words.size() && words[next][0] == '-') next++;  // what a remote shell would take
  if (next + 1 >= words.size()) return 2;
  std::string command;
  for (std::size_t i = next + 1; i < words.size(); i++) command += (command.empty() ? "" : " ") + words[i];
  Failure failure;
  Connection head = find_head(endpoint_of(variable("TSRUN_HEAD")), Role::worker, variable("TSRUN_KEY"), 10, failure);
  if (!head.open()) throw Error(text("agent for ", words[next], ": no tsrun that leads: ", failure.words));
  send(head, AgentMessage{words[next], command});
  head.flush(5);
  while (head.open()) {
    pollfd watched = {head.number(), POLLIN, 0};
    poll(&watched, 1, -1);
    head.fill();
    if (head.buffered() > 0) head.close();
  }
  return 0;
}

int run_listed_host(const std::string& head) {
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
  auto connection = find_head(endpoint_of(head), Role::host, orders.secret, 10, failure);
  if (!connection.open()) {
    logger.error(text("tsrun on ", host_name(), ": cannot reach ", head, ": ", failure.words));
    return failure.kind == Failure::Kind::secret ? 2 : 1;
  }
  const int code =
      follow(options, std::move(connection), orders.secret, orders.called, orders.node_rank, orders.workers);
  return code == spare_was_dropped ? 1 : code;
}

}  // namespace tessera::tsrun
