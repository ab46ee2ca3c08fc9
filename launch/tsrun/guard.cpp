#include "launch/tsrun/guard.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

namespace tessera::tsrun {
namespace {

constexpr std::size_t own_words = 9;  // number of words before those of mpirun

/// The words of guard_words(), parsed.
struct Guarded {
  explicit Guarded(const std::vector<std::string>& words)
      : files(words.at(0)),
        memory(words.at(1)),
        log(words.at(2)),
        id(words.at(3)),
        first(std::stoi(words.at(4))),
        ranks(std::stoi(words.at(5))),
        longest(std::stoi(words.at(6))),
        lock(std::stoi(words.at(7))),
        stop_time_out(std::stoi(words.at(8))),
        mpirun(words.begin() + own_words, words.end()) {}
  std::string files, memory, log, id;
  int first, ranks, longest, lock, stop_time_out;
  std::vector<std::string> mpirun;
};

pid_t start(const std::vector<std::string>& words) {
  Spawn mpirun;
  mpirun.words = words;
  mpirun.environment = this_environment();
  mpirun.deaf = true;
  const auto preload = mpirun.environment.find(guard_preload);
  if (preload != mpirun.environment.end()) {
    mpirun.environment["LD_PRELOAD"] = preload->second;
    mpirun.environment.erase(preload);
  }
  return spawn(mpirun);
}

/// Returns whether the child `pid` has ended, and stores its status. Also reaps other children that have ended.
bool has_ended(pid_t pid, int& status) {
  int one = 0;
  for (pid_t ended = waitpid(-1, &one, WNOHANG); ended > 0; ended = waitpid(-1, &one, WNOHANG))
    if (ended == pid) {
      status = one;
      return true;
    }
  return false;
}

/// Runs when the leader is gone: waits for the workers and deletes the folders. Returns the exit code.
int end_alone(const Guarded& job, pid_t mpirun, worker::SharedFolder& files, worker::SharedFolder& memory) {
  std::error_code absent;
  const bool kept = std::filesystem::exists(worker::kept_file(job.memory), absent);
  bool saved = !kept;
  if (kept) {
    Reporter reporter;
    if (!job.log.empty()) reporter.keep_in(job.log);
    reporter.note("the leading tsrun was killed: the workers end after the iterations of its lease, with a checkpoint");
    int status = 0;
    bool gone = false;
    outlive_leader(job.ranks, job.longest, job.stop_time_out, [&] { gone = gone || has_ended(mpirun, status); });
    // Workers of other hosts may take longer than those of this host.
    for (const double until = now() + job.stop_time_out; !gone && now() < until; wait_for({}, .05))
      gone = has_ended(mpirun, status);
    saved = all_saved(job.memory, job.first, job.ranks);
    reporter.note(saved ? "all workers have saved their state; the same command resumes from the newest checkpoint"
                        : how_to_adopt(job.id));
  }
  kill(mpirun, SIGKILL);
  end_descendants();
  files.keep(false);
  memory.keep(!saved);
  return 1;
}

}  // namespace

std::vector<std::string> guard_words(const Job& job, const JobFolders& folders, const std::string& log) {
  std::size_t own = 0;  // index of the leader's host, if it has workers
  while (own < job.hosts.size() && job.hosts[own].machine != job.machine) own++;
  const bool works = own < job.hosts.size();
  int workers = 0;  // of this machine, on which mpirun starts those of other shells, too
  for (auto h = own; h < job.hosts.size() && job.hosts[h].machine == job.machine; h++) workers += job.hosts[h].workers;
  return {own_path(),
          "--as-guard",
          folders.files(),
          folders.memory(),
          log,
          job.id,
          std::to_string(works ? job.first_rank(own) : 0),
          std::to_string(workers),
          std::to_string(job.options.longest_without_leader()),
          std::to_string(folders.lock()),
          std::to_string(job.options.stop_time_out)};
}

int run_guard(const std::vector<std::string>& words) {
  if (words.size() <= own_words) throw Error("--as-guard is for tsrun itself");
  const Guarded job(words);
  fcntl(job.lock, F_SETFD, FD_CLOEXEC);
  signal(SIGPIPE, SIG_IGN);
  const auto signals = catch_signals({SIGCHLD});
  adopt_orphans();
  // While tsrun lives, it deletes the folders.
  auto files = worker::SharedFolder::use(job.files), memory = worker::SharedFolder::use(job.memory);
  files.keep(true);
  memory.keep(true);
  const auto mpirun = start(job.mpirun);
  for (;;) {
    pollfd watched[2] = {{STDIN_FILENO, POLLIN, 0}, {signals.number(), POLLIN, 0}};
    poll(watched, 2, 1000);
    caught(signals);
    int status = 0;
    if (has_ended(mpirun, status)) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (watched[0].revents != 0) return end_alone(job, mpirun, files, memory);
  }
}

void outlive_leader(int ranks, double longest, double stop_time_out, const std::function<void()>& poll_once) {
  double until = now() + longest;
  bool any_ended = false;
  for (auto left = workers_below(); !left.empty() && now() < until; left = workers_below()) {
    std::set<std::string> running;
    for (const auto pid : left) running.insert(variable_of(pid, "OMPI_COMM_WORLD_RANK"));
    running.erase("");  // of a process that has just ended
    if (!any_ended && running.size() < static_cast<std::size_t>(ranks)) {
      any_ended = true;
      until = std::min(until, now() + stop_time_out);
    }
    poll_once();
    wait_for({}, .1);
  }
  for (const auto pid : workers_below()) kill(pid, SIGKILL);
}

bool all_saved(const std::string& memory, int first, int ranks) {
  std::error_code absent;
  const auto saved = [&](int rank) { return std::filesystem::exists(worker::saved_file(memory, rank), absent); };
  for (int rank = first; rank < first + ranks; rank++)
    if (!saved(rank)) return false;
  const auto kept = worker::ranks_with_state(memory);
  return std::all_of(kept.begin(), kept.end(), saved);
}

std::string how_to_adopt(const std::string& id) {
  return text("the state of the job is kept in ", worker::job_folder(id).string(),
              ": the same command continues from it; `tessera state clean ", id, "` deletes it");
}

}  // namespace tessera::tsrun
