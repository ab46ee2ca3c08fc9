#include "launch/tsrun/attempt.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "framework/worker/launch_link.h"
#include "framework/worker/stop_signals.h"
#include "launch/tsrun/guard.h"
#include "launch/tsrun/messages.h"
#include "launch/tsrun/run_folder.h"

namespace tessera::tsrun {
namespace {

constexpr double settle_seconds = .15;    // seconds to wait after a worker's own failure for reports of an earlier one
constexpr double lost_peer_seconds = .5;  // seconds to wait after a worker lost a peer for that peer's report
constexpr double stop_seconds = 3;        // seconds that supervisors have to report after they were told to stop
constexpr double quiet_seconds = 1.2;     // the same for those that were silent before: they are probably lost
constexpr double one_signal_seconds = 3;  // signals on several hosts within this time count as one

std::string command_line(const std::vector<std::string>& words) {
  std::string all;
  for (const auto& word : words) all += (all.empty() ? "" : " ") + word;
  return all;
}

}  // namespace

Attempt::Attempt(const Job& job, const JobFolders& folders, int restart, std::string order, LeaderSockets& sockets,
                 Reporter& reporter, LogFollower& logs)
    : job_(job),
      folders_(folders),
      restart_(restart),
      order_(std::move(order)),
      limit_(order_ == worker::order_to_save ? job.options.save_time_out : std::nullopt),
      sockets_(sockets),
      reporter_(reporter),
      logs_(logs),
      pending_(reporter, {job.secret, job.key}, job.workers),
      lines_(static_cast<std::size_t>(job.workers)) {}

Attempt::~Attempt() {
  if (mpirun_ > 0) kill(-mpirun_, SIGKILL);
  end_descendants(sockets_.agents);
}

template <class Message>
void Attempt::tell_all(const Message& message) {
  for (auto& line : lines_) send(line.connection, message);
}

Outcome Attempt::run() {
  began_ = now();
  start_mpirun();
  const auto all = static_cast<std::size_t>(job_.workers);
  while (ends_.size() < all && !(failing_ && now() > settled_ && !undecided())) poll_once();
  if (!failing_ && good_ == all) {
    tell_all(LeaveMessage());
    finish_mpirun(3);
  } else {
    stop_all();
    finish_mpirun(0);
  }
  take_late_signals();
  logs_.show(true);
  return verdict();
}

void Attempt::start_mpirun() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error("pipe2 failed");
  const Descriptor reading(ends[0]);
  guard_line_ = Descriptor(ends[1]);
  // A file, because mpirun may still write to it when this process is gone.
  const auto output = folders_.files() + "/mpirun.txt";
  const Descriptor writing(open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  mpirun_output_ = Descriptor(open(output.c_str(), O_RDONLY | O_CLOEXEC));
  if (!writing || !mpirun_output_) throw Error(text(output, " cannot be made"));
  const auto words = mpirun_words(job_, folders_);
  Spawn guard;
  guard.words = guard_words(job_, folders_, reporter_.file());
  guard.words.insert(guard.words.end(), words.begin(), words.end());
  guard.environment = mpirun_environment(job_, folders_, restart_);
  guard.input = reading.number();
  guard.output = writing.number();
  guard.kept = folders_.lock();
  guard.leaves_terminal = guard.deaf = guard.outlives = true;
  if (restart_ == 0 && loopback_library().empty())
    reporter_.say("tsrun_loopback.so is not installed beside tsrun: mpirun will listen on all network interfaces",
                  log::LogLevel::warning);
  reporter_.note(command_line(words));
  mpirun_ = spawn(guard);
}

void Attempt::poll_once() {
  std::vector<pollfd> watched = {{sockets_.signals.number(), POLLIN, 0}};
  const auto watch = [&](const Connection& c) {
    if (c.open()) watched.push_back({c.number(), static_cast<short>(POLLIN | (c.wants_to_write() ? POLLOUT : 0)), 0});
  };
  pending_.watch(watched, sockets_.listener);
  for (const auto& agent : agents_) watch(agent.connection);
  for (const auto& line : lines_) watch(line.connection);
  for (const auto& host : sockets_.hosts) watch(host);
  sockets_.spares.watch(watched);
  wait_for(watched, failing_ ? .02 : .1);
  handle_mpirun();
  handle_pending();
  handle_agents();
  handle_workers();
  handle_hosts();
  sockets_.spares.handle(reporter_, job_.options.host_time_out);
  handle_signals();
  start_programs();
  check_deadlines();
  heartbeat();
  grow();
  logs_.show();
}

/// Admits pending connections by their first message; refuses unknown programs and workers of an earlier start.
void Attempt::handle_pending() {
  pending_.take(sockets_.listener);
  for (auto& client : pending_.all()) {
    if (!client.challenge.proven()) continue;
    auto message = next_message<PendingMessage>(client.connection);
    if (!message || !client.connection.open()) continue;
    const bool of_host =
        std::holds_alternative<HostMessage>(*message) || std::holds_alternative<ListeningMessage>(*message);
    if (of_host != (client.challenge.role() == Role::host)) {
      pending_.refuse(client, "a message of another role than it has proven");
      continue;
    }
    std::visit(Cases{[&](HostMessage& host) { admit(client, std::move(host)); },
                     [&](const ListeningMessage& host) {
                       if (pending_.has_answered(client, host))
                         sockets_.spares.admit(job_, pending_, client, reporter_);
                     },
                     [&](const auto& worker_or_agent) { admit(client, worker_or_agent); }},
               *message);
  }
  pending_.tidy();
}

/// Handles a spare host, or a lost host that is back, which connects while the job runs.
void Attempt::admit(PendingConnection& client, HostMessage&& host) {
  if (host.info.spare || job_.lost_hosts > 0) return pending_.introduce(client, std::move(host));
  send(client.connection,
       RefusedMessage{2,
                      "the job has all its hosts already and is running; a host that is to wait until "
                      "another one is lost is started with --spare"});
  pending_.refuse(client, "more hosts than --nnodes");
}

void Attempt::admit(PendingConnection& client, const AgentMessage& agent) {
  for (std::size_t h = 0; h < job_.hosts.size(); h++)
    if (job_.mpi_name(h) == agent.host && sockets_.hosts[h].open()) {
      send(sockets_.hosts[h], RunMessage{agent.words});
      agents_.push_back({std::move(client.connection), h});
      return;
    }
  pending_.refuse(client, "an agent for a host that is not in the job");
}

void Attempt::admit(PendingConnection& client, const WorkerMessage& worker) {
  if (worker.attempt != restart_) return pending_.refuse(client, text("a worker of start ", worker.attempt));
  if (worker.rank >= job_.workers) return pending_.refuse(client, text("a worker of rank ", worker.rank));
  auto& line = lines_[static_cast<std::size_t>(worker.rank)];
  if (line.rank >= 0) return pending_.refuse(client, text("rank ", worker.rank, " a second time"));
  line.connection = std::move(client.connection);
  line.rank = worker.rank;
}

/// The connection of an agent stays open as long as MPI's daemon on that host runs. An agent sends nothing more.
void Attempt::handle_agents() {
  for (auto& agent : agents_) {
    agent.connection.fill();
    if (agent.connection.buffered() > 0) agent.connection.close();
  }
  agents_.remove_if([](const Agent& agent) { return !agent.connection.open(); });
}

void Attempt::handle_workers() {
  for (auto& line : lines_) {
    if (!line.connection.open()) continue;
    line.connection.write_more();
    handle(line);
    if (!line.connection.open() && !ended(line.rank)) {
      WorkerEnd lost;
      lost.rank = line.rank;
      lost.host = job_.hosts[job_.host_of(line.rank)].host;
      lost.place = line.place;
      lost.signal = SIGKILL;
      lost.reason = line.connection.problem().empty() ? "(its supervisor was killed, and the worker with it)"
                                                      : text("(its supervisor sent ", line.connection.problem(), ")");
      judge_end(lost);
    }
  }
}

void Attempt::handle(Line& line) {
  line.connection.fill();
  while (auto message = next_message<FromWorkerMessage>(line.connection))
    std::visit(Cases{[&](HeartbeatMessage& m) { line.place = std::move(m.place); },
                     [&](ResumeMessage& m) { line.resume = std::move(m.words); },
                     [&](RanksMessage& m) { possible_ = std::move(m.ranks); },
                     [&](const JoiningMessage&) { line.joining = true; },
                     [&](const JoinedMessage&) { line.joining = line.joined = true; },
                     [&](const LogFailedMessage& m) {
                       const auto words = text("rank ", line.rank, ": ", m.words, "; it continues");
                       log_failed_ ? reporter_.note(words) : reporter_.say(words);
                       log_failed_ = true;
                     },
                     [&](const EndedMessage& m) {
                       if (m.end.rank == line.rank)
                         judge_end(m.end);
                       else
                         line.connection.refuse(text("the end of rank ", m.end.rank));
                     }},
               *message);
}

bool Attempt::ended(int rank) const {
  return std::any_of(ends_.begin(), ends_.end(), [=](const WorkerEnd& end) { return end.rank == rank; });
}

void Attempt::judge_end(const WorkerEnd& end) {
  ends_.push_back(end);
  good_ += end.good() ? 1 : 0;
  if (asked_to_stop_ != 0 && first_end_after_stop_ == 0) first_end_after_stop_ = now();
  if (end.good() || end.alive) return;
  const bool as_asked = asked_to_stop_ != 0 && (end.signal == asked_to_stop_ || end.code == 128 + asked_to_stop_);
  const bool waits_longer = end.lost_peer || end.code == 2 || end.left_mpi_init_silently();
  if (!as_asked) fail("", {}, waits_longer ? lost_peer_seconds : settle_seconds);
}

/// The job cannot continue. Waits for `settle` seconds for messages that may still reveal the root cause.
void Attempt::fail(const std::string& trouble, std::vector<int> suspects, double settle) {
  const bool better = failing_ && trouble_.empty() && only_lost_peers();
  settled_ = failing_ ? std::min(settled_, now() + settle) : now() + settle;
  if (!failing_ || better) {
    trouble_ = trouble;
    suspects_ = std::move(suspects);
  }
  failing_ = true;
}

bool Attempt::only_lost_peers() const {
  return std::all_of(ends_.begin(), ends_.end(), [](const WorkerEnd& end) { return end.good() || end.lost_peer; });
}

/// True while workers report that they lost a peer and other workers are silent: heartbeats will soon show whether the
/// silent ones were cut off.
bool Attempt::undecided() const {
  const auto quiet = [](const Line& line) {
    return line.connection.open() && line.connection.is_silent_for(suspicious_silence_seconds);
  };
  return trouble_.empty() && asked_to_stop_ == 0 && !ends_.empty() && only_lost_peers() &&
         std::any_of(lines_.begin(), lines_.end(), quiet);
}

void Attempt::handle_hosts() {
  for (std::size_t h = 0; h < sockets_.hosts.size(); h++) {
    auto& host = sockets_.hosts[h];
    if (!host.open()) continue;
    host.write_more();
    for (const auto& message : receive<FromHostMessage>(host)) {
      if (const auto* asked = std::get_if<SignalMessage>(&message)) stop_as_asked(asked->signal, static_cast<int>(h));
      if (const auto* failed = std::get_if<FailedMessage>(&message))
        fail(text("on ", job_.words_of(h), ": ", failed->words), {}, settle_seconds);
    }
    const double limit = job_.options.host_time_out;
    const bool silent =
        host.is_silent_for(limit) && host.is_silent_for(silence_allowed(limit, process_here(job_.hosts[h])));
    if (!host.open() || silent) lost_hosts_.insert(h);
    if (!host.open())
      fail(text("the tsrun on ", job_.words_of(h),
                host.problem().empty() ? " has ended" : " was cut off: it sent " + host.problem()),
           {}, settle_seconds);
    if (host.open() && silent)
      fail(text("host ", job_.words_of(h), " with ", ranks_words(job_.ranks_on(h)), " has not responded for ", limit,
                " s; check cable, switch and power"),
           {}, 0);
  }
}

void Attempt::handle_mpirun() {
  char bytes[4096];
  for (auto count = read(mpirun_output_.number(), bytes, sizeof bytes); count > 0;
       count = read(mpirun_output_.number(), bytes, sizeof bytes))
    mpirun_rest_.append(bytes, static_cast<std::size_t>(count));
  for (auto end = mpirun_rest_.find('\n'); end != std::string::npos; end = mpirun_rest_.find('\n')) {
    if (end > 0) mpirun_lines_.push_back(mpirun_rest_.substr(0, end));
    if (end > 0) reporter_.note("mpirun: " + mpirun_lines_.back());
    mpirun_rest_.erase(0, end + 1);
  }
}

/// The first signal asks the workers to end, the second kills them unless it is only a warning (worker::ends_at_once).
/// A signal to a whole job reaches the tsrun of every host (`host` -1: this one) and counts once.
void Attempt::stop_as_asked(int number, int host) {
  asked_ = true;
  const bool new_there = asked_on_.insert(host).second;
  if (regroups_) {  // the workers have already been asked to end
    regroups_ = false;
    asked_at_ = now();
    reporter_.say(text(signal_words(number), ": the job ends when its workers have; a second signal kills them"));
    return;
  }
  if (asked_to_stop_ != 0) {
    if (!worker::ends_at_once(number)) return;
    if (new_there && now() - asked_at_ < one_signal_seconds) return;
    reporter_.say("second signal: all workers are killed");
    fail("", {}, 0);
    return;
  }
  // Workers get SIGINT or SIGTERM as a request to end, whatever signal came.
  asked_to_stop_ = number == SIGINT ? SIGINT : SIGTERM;
  asked_at_ = now();
  reporter_.say(text(signal_words(number), ": the workers are asked to end; a second signal kills them"));
  tell_all(SignalMessage{asked_to_stop_});
}

void Attempt::handle_signals() {
  for (const int s : caught(sockets_.signals))
    if (s != SIGCHLD) stop_as_asked(s, -1);
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG))
    if (pid == mpirun_) {
      mpirun_ = 0;
      mpirun_ended_ = now();
    }
}

/// Signals that came when all workers had ended, which nobody has to be told any more.
void Attempt::take_late_signals() {
  for (const int s : caught(sockets_.signals)) asked_ = asked_ || s != SIGCHLD;
}

/// The file STOP in the log folder is a request to stop, like a signal. It is deleted, so that the next start runs.
void Attempt::look_for_stop_file() {
  std::error_code absent;
  const auto file = std::filesystem::path(job_.log_dir) / "STOP";
  if (job_.log_dir.empty() || failing_ || !std::filesystem::remove(file, absent)) return;
  reporter_.say(file.string() + " was found");
  stop_as_asked(SIGTERM, -1);
}

/// After a host was lost, the job may run with fewer workers. When the hosts have room for more again, the workers stop
/// after their step, and the larger number resumes.
void Attempt::grow() {
  const bool all_there = std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.joined; });
  if (job_.workers >= job_.full_workers || !all_there || failing_ || asked_to_stop_ != 0 || !order_.empty()) return;
  if (sockets_.call_hosts) sockets_.call_hosts();
  const int most = most_ranks(possible_, std::min(room_of(job_, sockets_.spares), job_.full_workers));
  if (most <= job_.workers) return;
  reporter_.say(text("there is room for ", most, " of ", job_.full_workers, " workers again: the ", job_.workers,
                     " workers save and end, then ", most, " continue"),
                log::LogLevel::warning);
  regroups_ = true;
  asked_to_stop_ = SIGTERM;
  asked_at_ = now();
  tell_all(SignalMessage{SIGTERM});
}

StartMessage Attempt::start_message(int rank) const {
  const auto& host = job_.hosts[job_.host_of(rank)];
  StartMessage start;
  start.place = job_.place_of(rank, restart_);
  start.host = host.host;
  start.program = host.program;
  start.folder = host.folder;
  start.environment = host.environment;
  start.bind_core = host.bind_core;
  start.log = log_of(host, rank);
  start.launch_folder = folders_.memory();
  start.lease = job_.options.lease;
  start.longest_save = job_.options.longest_save();
  start.leader_time_out = job_.options.leader_time_out;
  start.order = order_.empty() && !job_.options.keep_state ? worker::order_to_keep_nothing : order_;
  start.header = text("rank ", rank, " of ", job_.workers, " on ", host.host, ", start ", restart_, ": ",
                      command_line(host.program));
  return start;
}

/// Starts the programs when all supervisors have connected, so that a supervisor that does not come does not make other
/// programs wait.
void Attempt::start_programs() {
  const bool all = std::all_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.rank >= 0; });
  if (!all || failing_ || lines_[0].started) return;
  reporter_.note(text("all workers have connected after ", now() - began_, " s"));
  for (auto& line : lines_) {
    line.started = true;
    send(line.connection, start_message(line.rank));
  }
  if (asked_to_stop_ != 0) tell_all(SignalMessage{asked_to_stop_});
}

void Attempt::check_deadlines() {
  if (failing_ && !undecided()) return;
  const double passed = now() - began_;
  if (limit_ && passed > *limit_) return fail(text("it took longer than the ", *limit_, " s of TTP_OT"), {}, 0);
  const int limit = job_.options.cluster_time_out;
  const auto ranks_where = [&](auto holds) {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < lines_.size(); r++)
      if (holds(lines_[r])) ranks.push_back(static_cast<int>(r));
    return ranks;
  };
  const bool meeting = std::any_of(lines_.begin(), lines_.end(), [](const Line& line) { return line.joining; });
  if (limit >= 0 && passed > limit) {
    const auto absent = ranks_where([](const Line& line) { return line.rank < 0; });
    about_mpirun_ = !absent.empty();
    if (!absent.empty()) return fail(text(ranks_words(absent), " could not be started within ", limit, " s"), {}, 0);
    const auto late = ranks_where([](const Line& line) { return !line.joining; });
    if (meeting && !late.empty())
      return fail(text(ranks_words(late), " did not connect to the others within ", limit, " s"), late, 0);
    const auto waiting = ranks_where([](const Line& line) { return !line.joined; });
    if (meeting && !waiting.empty())
      return fail(
          text("the workers did not connect to each other within ", limit, " s; still waiting: ", ranks_words(waiting)),
          waiting, 0);
  }
  check_silence();
  if (mpirun_ended_ != 0) {
    about_mpirun_ = true;
    fail("mpirun ended before the workers", {}, settle_seconds);
  }
  const int longest_stop = job_.options.stop_time_out;
  if (first_end_after_stop_ != 0 && now() - first_end_after_stop_ > longest_stop)
    fail(text("some workers did not end within ", longest_stop, " s of the others"), {}, 0);
}

void Attempt::heartbeat() {
  if (real_now() - last_heartbeat_ < heartbeat_seconds) return;
  last_heartbeat_ = real_now();
  look_for_stop_file();
  tell_all(HeartbeatMessage());
  for (auto& host : sockets_.hosts) send(host, HeartbeatMessage());
  sockets_.spares.tell_all(HeartbeatMessage());
}

void Attempt::stop_all() {
  const bool hang = asked_to_stop_ == 0 && (!suspects_.empty() || (!ends_.empty() && only_lost_peers()));
  tell_all(StopMessage{hang});
  const double began = now();
  const auto waits = [&] {
    const double passed = now() - began;
    return std::any_of(lines_.begin(), lines_.end(), [=](const Line& line) {
      return line.connection.open() && passed < stop_seconds &&
             (passed < quiet_seconds || !line.connection.is_silent_for(suspicious_silence_seconds + passed));
    });
  };
  while (waits()) {
    std::vector<pollfd> watched;
    for (const auto& line : lines_)
      if (line.connection.open()) watched.push_back({line.connection.number(), POLLIN, 0});
    wait_for(watched, .05);
    for (auto& line : lines_) handle(line);
  }
  // Only now, because hosts kill everything that runs there, and supervisors must first report how their workers ended.
  for (auto& host : sockets_.hosts) send(host, StopMessage());
}

void Attempt::finish_mpirun(double patience) {
  for (const double until = now() + patience; mpirun_ > 0 && now() < until;) {
    pollfd watched = {sockets_.signals.number(), POLLIN, 0};
    wait_for({&watched, 1}, .05);
    handle_mpirun();
    take_late_signals();
    if (waitpid(mpirun_, nullptr, WNOHANG) == mpirun_) mpirun_ = 0;
  }
  handle_mpirun();
  if (mpirun_ > 0) kill(-mpirun_, SIGKILL);
  mpirun_ = 0;
  end_descendants(sockets_.agents);
}

}  // namespace tessera::tsrun
