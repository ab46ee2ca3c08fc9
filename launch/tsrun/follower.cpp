#include "launch/tsrun/follower.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <iterator>
#include <optional>

#include "launch/tsrun/job.h"
#include "launch/tsrun/log_file.h"
#include "launch/tsrun/reach.h"

namespace tessera {
namespace {

constexpr double beat_seconds = 1, head_silence_seconds = 8;

class Follower {
 public:
  Follower(const LaunchOptions& options, Connection head, std::string called)
      : options_(options),
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
    signals_ = catch_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT});
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    head_.send({{"is", "host"}, {"info", info_}, {"called", called_}});
    while (!code_ && head_.open() && head_.silence() < (welcome_ ? head_silence_seconds : 1e9)) turn();
    end_descendants();
    logs_.show(true);
    if (code_) return end();
    voice_.say(text("the tsrun that leads, on ", head_words_, ", ",
                    head_.open() ? "has not been heard for 8 s: cable, switch or power?" : "has gone away",
                    "; all workers here are stopped"));
    return 1;
  }

 private:
  void turn() {
    pollfd watched[2] = {{head_.number(), static_cast<short>(POLLIN | (head_.wants_to_write() ? POLLOUT : 0)), 0},
                         {signals_.number(), POLLIN, 0}};
    poll(watched, 2, 100);
    head_.write_more();
    for (const auto& message : head_.receive()) obey(message);
    obey_signals();
    logs_.show();
    if (now() - last_beat_ > beat_seconds) {
      last_beat_ = now();
      head_.send({{"is", "beat"}});
    }
  }

  void obey(const Message& message) {
    const std::string what = message.at("is");
    if (what == "listen") {
      reached_ = listen_at({info_.address, 0});
      head_.send({{"is", "listening"}, {"port", local_endpoint(reached_).port}});
    }
    if (what == "try")
      head_.send({{"is", "tried"}, {"failed", unreachable(message.at("targets").get<std::vector<Target>>())}});
    if (what == "welcome") begin(message);
    if (what == "run") start(message.at("words"));
    if (what == "stop") end_descendants();
    if (what == "refused" || what == "end") {
      code_ = message.at("code").get<int>();
      words_ = message.at("words");
    }
  }

  void begin(const Message& message) {
    welcome_ = true;
    reached_.close();
    alias_ = message.at("alias");
    folders_.emplace(message.at("id").get<std::string>());
    const int first = message.at("first_rank");
    if (called_.empty()) voice_.keep_in(std::filesystem::path(info_.log_dir) / "scheduler.log");
    if (called_.empty())
      voice_.say(text("ranks ", first, " to ", first + info_.workers - 1, " on ", info_.host, " (", info_.interface,
                      " ", info_.address, "), led by ", head_words_, "; logs in ", info_.log_dir));
    const auto locals = tailed(options_.join ? options_.tail : "", info_.workers);
    const bool several = message.at("workers").get<int>() > 1;
    for (const int local : locals)
      logs_.add(log_of(info_, first + local), several ? text("[", first + local, "] ") : "");
  }

  /// The daemon of MPI on this host, as the head's mpirun words it.
  void start(const std::string& words) {
    Spawn daemon;
    daemon.words = {"/bin/sh", "-c", words};
    daemon.environment = free_of_launchers(info_.environment);
    daemon.session = daemon.deaf = true;
    daemon.host_name = alias_;
    try {
      spawn(daemon);
    } catch (const std::exception& error) {
      head_.send({{"is", "failed"}, {"words", error.what()}});
    }
  }

  void obey_signals() {
    for (const int s : caught(signals_)) {
      if (s == SIGCHLD) continue;
      if (asked_) code_ = 128 + s;
      asked_ = true;
      head_.send({{"is", "signal"}, {"signal", s}});
    }
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }

  int end() {
    if (!called_.empty()) return *code_;
    if (words_.empty() && *code_ == 2)
      voice_.say(text("the job was refused; the tsrun on ", head_words_, " says why"));
    else if (!words_.empty())
      voice_.say(words_);
    return *code_;
  }

  const LaunchOptions& options_;
  Connection head_;
  std::string head_words_, called_, alias_, words_;
  HostInfo info_;
  Descriptor signals_, reached_;
  std::optional<JobFolders> folders_;
  LogFollower logs_{std::cout};
  Voice voice_;
  bool welcome_ = false, asked_ = false;
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

int follow(const LaunchOptions& options, Connection head, const std::string& called, int node_rank, int workers) {
  return Follower(options, std::move(head), called).run(node_rank, workers);
}

Connection find_head(const Endpoint& where, double seconds, std::string& why) {
  for (const double until = now() + seconds;;) {
    auto socket = connect_to(where, 3, why);
    if (socket) return Connection(std::move(socket));
    if (seconds >= 0 && now() > until) return Connection();
    poll(nullptr, 0, 200);
  }
}

bool is_tsrun(Connection& head) {
  head.send({{"is", "who"}});
  for (const double until = now() + 2; head.open() && now() < until;) {
    pollfd watched = {head.number(), POLLIN, 0};
    poll(&watched, 1, 100);
    for (const auto& message : head.receive())
      if (message.at("is") == "tsrun") return true;
  }
  return false;
}

int run_agent(const std::vector<std::string>& words) {
  std::size_t next = 0;
  while (next < words.size() && words[next][0] == '-') next++;  // what a remote shell would take
  if (next + 1 >= words.size()) return 2;
  std::string command, why;
  for (std::size_t i = next + 1; i < words.size(); i++) command += (command.empty() ? "" : " ") + words[i];
  Connection head = find_head(endpoint_of(variable("TSRUN_HEAD")), 10, why);
  head.send({{"is", "agent"}, {"key", variable("TSRUN_KEY")}, {"host", words[next]}, {"words", command}});
  head.flush(5);
  while (head.open()) {
    pollfd watched = {head.number(), POLLIN, 0};
    poll(&watched, 1, -1);
    head.receive();
  }
  return 0;
}

int run_listed_host(const std::string& head) {
  std::string line;
  std::getline(std::cin, line);
  const auto message = Message::parse(line);
  for (const auto& [name, value] : message.at("environment").get<Environment>()) setenv(name.c_str(), value.c_str(), 1);
  const auto options = read_options(message.at("words").get<std::vector<std::string>>(), this_environment());
  std::string why;
  auto connection = find_head(endpoint_of(head), 10, why);
  if (!connection.open()) {
    std::cerr << "tsrun on " << host_name() << ": cannot reach " << head << ": " << why << std::endl;
    return 1;
  }
  return follow(options, std::move(connection), message.at("called"), message.at("node_rank"), message.at("workers"));
}

}  // namespace tessera
