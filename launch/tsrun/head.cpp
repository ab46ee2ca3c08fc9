#include "launch/tsrun/head.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <sstream>

#include "launch/tsrun/attempt.h"
#include "launch/tsrun/run_folder.h"

namespace tessera {
namespace {

/// The local workers that --tail_worker_log names; ids that do not exist name nobody.
std::vector<int> tailed(const std::string& list, int workers) {
  std::vector<int> all;
  std::istringstream words(list);
  for (std::string word; std::getline(words, word, ',');)
    for (int local = 0; local < workers; local++)
      if (word == "-1" || word == std::to_string(local)) all.push_back(local);
  return all;
}

void follow_logs(const Job& job, std::size_t host, LogFollower& logs) {
  const auto locals = tailed(job.options.tail, job.hosts[host].workers);
  for (const int local : locals) {
    const int rank = job.first_rank(host) + local;
    logs.add(log_of(job.hosts[host], rank), locals.size() > 1 ? text("[", rank, "] ") : "");
  }
}

/// Leave the terminal: the parent returns to it, the child goes on and writes to the log alone.
void go_on_alone(const Job& job) {
  const auto log = std::filesystem::path(job.hosts[0].log_dir) / "scheduler.log";
  const pid_t child = fork();
  if (child < 0) throw Error("cannot start a process");
  if (child > 0) {
    std::cerr << "tsrun: " << job.workers << " workers go on without this terminal (process " << child
              << "); logs are in " << job.hosts[0].log_dir << "; `kill " << child << "` stops them" << std::endl;
    _exit(0);
  }
  setsid();
  const Descriptor nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (int standard = 0; standard < 3; standard++) dup2(nothing.number(), standard);
}

class Head {
 public:
  explicit Head(const LaunchOptions& options) { job_.options = options; }

  int run() {
    gather();
    voice_.keep_in(std::filesystem::path(job_.hosts[0].log_dir) / "scheduler.log");
    if (!job_.options.join) go_on_alone(job_);
    sockets_.signals = catch_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT});
    signal(SIGPIPE, SIG_IGN);
    adopt_orphans();
    const JobFolders folders(job_.key.substr(0, 10));
    for (const auto& note : job_.options.notes) voice_.say(note);
    voice_.say(beginning());
    LogFollower logs(std::cout);
    if (job_.options.join) follow_logs(job_, 0, logs);
    Outcome outcome = Attempt(job_, folders, 0, sockets_, voice_, logs).run();
    for (int restart = 1; may_restart(outcome, restart); restart++) {
      voice_.say(outcome.words);
      voice_.say(text("starting all workers again (", restart, " of ", job_.options.max_restarts, ")"));
      outcome = Attempt(job_, folders, restart, sockets_, voice_, logs).run();
    }
    return end(outcome);
  }

 private:
  bool may_restart(const Outcome& outcome, int restart) const {
    return outcome.kind == Outcome::Kind::failed && !outcome.refused && restart <= job_.options.max_restarts;
  }

  void gather() {
    auto& options = job_.options;
    const auto address = resolve(options.master_addr.empty() ? "127.0.0.1" : options.master_addr);
    sockets_.listener = listen_at({address, options.master_port.value_or(0)});
    job_.head = local_endpoint(sockets_.listener);
    job_.key = random_key();
    job_.master_port = job_.head.port;
    job_.hosts = {describe_this_host(options, address)};
    if (!job_.hosts[0].problem.empty()) throw ConfigError(job_.hosts[0].problem);
    job_.workers = job_.hosts[0].workers;
    sockets_.hosts.resize(1);
  }

  std::string beginning() const {
    const auto& host = job_.hosts[0];
    return text(job_.workers, " workers on ", host.host, "; logs in ", host.log_dir);
  }

  int end(const Outcome& outcome) {
    if (outcome.kind == Outcome::Kind::done) {
      voice_.say(text("all ", job_.workers, " workers are done"));
      return 0;
    }
    if (outcome.kind == Outcome::Kind::failed && !outcome.refused)
      voice_.say(text(outcome.words, "\n",
                      trains(job_.hosts[0].program) ? "The same command goes on from the newest checkpoint. " : "",
                      "Logs: ", job_.hosts[0].log_dir));
    else
      voice_.say(outcome.words);
    return outcome.code;
  }

  Job job_;
  HeadSockets sockets_;
  Voice voice_;
};

}  // namespace

int lead(const LaunchOptions& options) { return Head(options).run(); }

}  // namespace tessera
