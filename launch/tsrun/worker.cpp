#include "launch/tsrun/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <list>
#include <optional>
#include <sstream>

#include "framework/base/cpu_limit.h"
#include "framework/worker/job_record.h"
#include "framework/worker/launch_link.h"
#include "framework/worker/operation_record.h"
#include "framework/worker/shared_folder.h"
#include "framework/worker/thread_stacks.h"
#include "launch/tsrun/cores.h"
#include "launch/tsrun/handshake.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/log_file.h"
#include "launch/tsrun/logger.h"
#include "launch/tsrun/memory_kills.h"
#include "launch/tsrun/messages.h"

namespace tessera::tsrun {
namespace {

constexpr double own_signal_seconds =
    .1;  // seconds after which a signal to all processes of the job has arrived here, too
constexpr std::size_t lines_to_tell = 20;
constexpr double reach_leader_seconds = 30;  // seconds: the leader may be busy with other connections
constexpr double log_flush_seconds = .3,
                 stacks_seconds = 2;  // seconds; the leader waits 3 s for the report of an end

/// The two ends of the link to the program: it inherits `theirs` under the same number; the supervisor reads from
/// `ours`.
struct LinkEnds {
  Descriptor ours, theirs;
  std::string variable() const {
    struct stat found = {};
    fstat(theirs.number(), &found);
    return text(theirs.number(), ":", found.st_ino);
  }
};

LinkEnds make_link() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(text("socketpair: ", std::strerror(errno)));
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// Parses "2,4,8". Ignores what is not a number, because the program may not be tessera.
RanksMessage ranks_message(const std::string& words) {
  RanksMessage message;
  std::istringstream numbers(words);
  for (std::string one; std::getline(numbers, one, ',');)
    if (const auto number = std::strtol(one.c_str(), nullptr, 10); number > 0 && number <= 1 << 20)
      message.ranks.push_back(static_cast<int>(number));
  return message;
}

class Worker {
 public:
  explicit Worker(const Environment& environment) : environment_(environment) {}

  int run() {
    adopt_orphans();
    signals_ = catch_stop_signals();
    signal(SIGPIPE, SIG_IGN);
    use_folders();
    if (!connect()) return 1;
    while (!leaving_ && leader_.open() && !leader_is_lost()) poll_once();
    const bool leader_is_gone = !leaving_ && !leader_.open() && leader_.problem().empty(), keeps = state_is_kept();
    if (leader_is_gone && keeps) outlive_leader();
    end_descendants();
    if (log_) log_->take();
    log_.reset();
    if (!leaving_ && leader_.open())
      logger.error(text("worker on ", host_name(), ": the leading tsrun has not responded for ", leader_.silence(),
                        " s (--leader_time_out)"));
    if (!leader_.problem().empty())
      logger.error(text("worker on ", host_name(), ": the leading tsrun sent ", leader_.problem()));
    if (leaving_) return 0;
    if (keeps) return 1;  // the guard, or the tsrun of this host, knows whether all workers have saved
    end_mpirun();
    delete_folders();
    return 1;
  }

 private:
  std::string variable(const char* name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  bool connect() {
    const auto leader = variable("TSRUN_LEADER");
    Failure failure = {Failure::Kind::unreachable, "no TSRUN_LEADER"};
    if (!leader.empty()) leader_ = reach(endpoint_of(leader), failure);
    if (failure.kind != Failure::Kind::none) {
      const bool not_tsrun = failure.kind == Failure::Kind::not_tsrun;
      logger.error(text("worker on ", host_name(), not_tsrun ? ": the leading tsrun sent " : ": cannot reach tsrun at ",
                        not_tsrun ? "" : leader + ": ", failure.words));
      return false;
    }
    end_.rank = std::stoi("0" + variable("OMPI_COMM_WORLD_RANK"));
    end_.host = host_name();
    send(leader_, WorkerMessage{std::stoi("0" + variable("TSRUN_ATTEMPT")), end_.rank, end_.host});
    return true;
  }

  /// If nothing listens at the address, the leader has ended; if it closes the connection, it has too many connections.
  Connection reach(const Endpoint& where, Failure& failure) const {
    for (const double until = now() + reach_leader_seconds;;) {
      auto leader = reach_leader(where, Role::worker, variable("TSRUN_KEY"), reach_leader_seconds, failure);
      if (leader.open() || failure.kind != Failure::Kind::dropped || now() > until) return leader;
      wait_for({}, .2);
    }
  }

  /// The folder in which this host's workers keep their state.
  std::string memory() const {
    const auto folders = variable("TSRUN_FOLDERS");
    return folders.substr(std::min(folders.find(':'), folders.size() - 1) + 1);
  }

  bool state_is_kept() const {
    std::error_code absent;
    return !memory().empty() && std::filesystem::exists(worker::kept_file(memory()), absent);
  }

  /// The leader was killed, and no other tsrun starts the program: it continues for the lease and then is asked to
  /// stop. A program that has not restored its state yet would only wait for other workers, so it is not continued.
  void outlive_leader() {
    const double ask_at = now() + lease_, until = ask_at + longest_save_;
    for (bool asked = false; program_ > 0 && joined_ && end_.held >= 0 && now() < until;) {
      poll_once();
      if (asked || now() < ask_at) continue;
      asked = true;
      kill(-program_, SIGTERM);
    }
    if (log_ && program_ == 0 && end_.good()) std::ofstream(worker::saved_file(memory(), end_.rank)).flush();
  }

  void poll_once() {
    pollfd watched[4] = {{leader_.number(), static_cast<short>(POLLIN | (leader_.wants_to_write() ? POLLOUT : 0)), 0},
                         {signals_.number(), POLLIN, 0},
                         {link_.ours.number(), POLLIN, 0},
                         {log_ ? log_->number() : -1, POLLIN, 0}};
    double wait = to_pass_ != 0 ? own_signal_seconds : heartbeat_seconds;
    if (deadline_ != 0) wait = std::clamp(deadline_ - now(), 0.01, wait);
    wait_for(watched, wait);
    leader_.write_more();
    if (leader_.open())
      for (const auto& message : receive<ToWorkerMessage>(leader_))
        std::visit([this](const auto& m) { handle(m); }, message);
    pass_signal();
    take_log();
    handle_program();
    reap();
    look_at_deadline();
    if (real_now() - last_heartbeat_ >= heartbeat_seconds) {
      last_heartbeat_ = real_now();
      send(leader_, HeartbeatMessage{end_.place});
    }
  }

  void handle(const SignalMessage& message) {
    to_pass_ = message.signal;
    pass_at_ = now() + own_signal_seconds;
  }
  void handle(const StopMessage& message) { stop(message.hang); }
  void handle(const LeaveMessage&) { leaving_ = true; }
  void handle(const HeartbeatMessage&) {}

  void take_log() {
    if (!log_) return;
    log_->take();
    if (log_failed_ || log_->problem().empty()) return;
    log_failed_ = true;
    send(leader_, LogFailedMessage{"its log " + log_->problem()});
  }

  /// A signal to all processes of a job (Slurm, systemd) has already reached the program, which would take a second one
  /// as the order to stop at once. So a signal that also reached this process directly is not passed on.
  void pass_signal() {
    for (const int s : caught(signals_))
      if (s != SIGCHLD) last_own_signal_ = now();
    if (to_pass_ == 0 || now() < pass_at_) return;
    if (program_ > 0 && pass_at_ - last_own_signal_ > 2) kill(-program_, to_pass_);
    to_pass_ = 0;
  }

  void handle(const StartMessage& message) {
    if (log_) return leader_.refuse("a second start");
    end_.host = message.host;
    try {
      launch(message);
    } catch (const std::exception& error) {
      end_.code = 127;
      end_.reason = error.what();
      tell_end();
    }
  }

  void launch(const StartMessage& message) {
    const auto& place = message.place;
    const auto cores = usable_cores();
    Spawn program;
    program.words = message.program;
    program.folder = message.folder;
    program.cores = bound_cores(message.bind_core, place.local_rank, place.local_workers, cores);
    program.environment =
        worker_environment(place, message.environment, environment_, usable_core_count(static_cast<int>(cores.size())));
    if (!program.cores.empty()) {
      program.environment["MSRUN_CPU_LIST"] = core_list(program.cores);
      program.environment.emplace("OMP_NUM_THREADS", std::to_string(program.cores.size()));
    }
    link_ = make_link();
    program.kept = link_.theirs.number();
    program.environment["TESSERA_LAUNCH_LINK"] = link_.variable();
    folder_ = message.launch_folder;
    lease_ = message.lease;
    longest_save_ = message.longest_save;
    leader_time_out_ = message.leader_time_out;
    program.environment["TESSERA_LAUNCH_FOLDER"] = folder_;
    if (!message.order.empty()) program.environment["TESSERA_LAUNCH_ORDER"] = message.order;
    log_.emplace(message.log, message.header);
    program.output = log_->program_end().number();
    memory_kills_ = memory_kills();
    program_ = spawn(program);
    link_.theirs.close();
    log_->program_end().close();
  }

  void handle_program() {
    char packet[16384];
    while (link_.ours) {
      const auto size = recv(link_.ours.number(), packet, sizeof packet, MSG_DONTWAIT);
      if (size == 0) link_.ours.close();
      if (size <= 0) return;
      const std::string about(packet + 1, static_cast<std::size_t>(size - 1));
      switch (static_cast<worker::LinkWord>(packet[0])) {
        case worker::LinkWord::joining:
          joining_ = true;
          send(leader_, JoiningMessage());
          break;
        case worker::LinkWord::joined:
          joined_ = true;
          send(leader_, JoinedMessage());
          break;
        case worker::LinkWord::position:
          end_.place = about;
          break;
        case worker::LinkWord::failed:
        case worker::LinkWord::lost_peer:
          end_.reason = about;
          end_.lost_peer = static_cast<worker::LinkWord>(packet[0]) == worker::LinkWord::lost_peer;
          break;
        case worker::LinkWord::done:
          done_ = true;
          deadline_ = 0;
          break;
        case worker::LinkWord::deadline: {
          char* phase = nullptr;
          time_of_phase_ = std::strtod(about.c_str(), &phase);
          phase_ = *phase == ' ' ? phase + 1 : phase;
          deadline_ = time_of_phase_ > 0 ? now() + time_of_phase_ : 0;
          break;
        }
        case worker::LinkWord::holds:
          if (end_.held < 0) std::ofstream(worker::kept_file(folder_)).flush();
          end_.held = static_cast<int>(std::min(std::strtoll(about.c_str(), nullptr, 10), 0LL + INT_MAX));
          break;
        case worker::LinkWord::ranks:
          send(leader_, ranks_message(about));
          break;
        case worker::LinkWord::resume:
          send(leader_, ResumeMessage{about});
          break;
      }
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
      if (pid != program_) continue;  // an orphan of the program
      handle_program();
      program_ = 0;
      deadline_ = 0;
      end_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      end_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      end_.for_memory = end_.signal == SIGKILL && memory_kills() > memory_kills_;
      end_.in_mpi_init = joining_ && !joined_ && end_.signal == 0;
      end_.unfinished = joined_ && !done_;
      end_descendants();
      tell_end();
    }
  }

  /// Stores in `end_` the last operation of the program with other ranks, from the record that tessera keeps. Returns
  /// whether the program is inside an operation.
  bool read_operation() {
    const auto record = worker::OperationRecord::open(worker::operations_file(folder_, end_.rank));
    const auto entries = record ? record->read() : std::vector<worker::OperationEntry>();
    if (entries.empty()) return false;
    end_.operation = worker::describe(entries.front(), worker::OperationRecord::now());
    return entries.front().inside();
  }

  /// The program has not ended a phase in time. Inside an operation it waits for other ranks, and the time-out of the
  /// operation tells more than this one.
  void look_at_deadline() {
    if (deadline_ == 0 || now() < deadline_) return;
    if (read_operation()) {
      deadline_ = now() + heartbeat_seconds / 10;
      return;
    }
    deadline_ = 0;
    end_.hung = true;
    const auto where = where_it_hangs(false);
    end_.reason =
        text("(it did not complete ", phase_, " within ", time_of_phase_, " s", where.empty() ? "" : "; ", where, ")");
    kill(-program_, SIGKILL);
  }

  /// Returns why a program that still runs makes no progress, as far as can be found out. The stacks of its threads go
  /// to its log, after the lines that are kept as its last lines. Inside an operation with other ranks it may only wait
  /// for them, so only a stopped process is told.
  std::string where_it_hangs(bool in_operation) {
    const auto record = worker::OperationRecord::open(worker::operations_file(folder_, end_.rank));
    const pid_t process = record ? record->pid() : program_;  // `program_` may be a script that started it
    const ProcessStatus status(process);
    if (status.state == 'T') return "it is stopped by SIGSTOP";
    if (in_operation) return "";
    if (status.state == 'D') return "it waits in the kernel, maybe for a disk";
    if (!log_ || !status.catches(worker::stacks_signal())) return "";
    log_->take();
    end_.last_lines = log_->last_lines(lines_to_tell);
    kill(process, worker::stacks_signal());
    const auto told = [this] {
      const auto last = log_->last_lines(1);
      return !last.empty() && last.front() == worker::end_of_stacks;
    };
    for (const double until = now() + stacks_seconds; !told() && now() < until; log_->take()) wait_for({}, .005);
    return "the stacks of its threads are in its log";
  }

  void tell_end() {
    read_operation();
    if (log_) {
      log_->take();
      log_->flush(log_flush_seconds);
      if (end_.last_lines.empty()) end_.last_lines = log_->last_lines(lines_to_tell);
      end_.log_problem = log_->problem();
    }
    send(leader_, EndedMessage{end_});
  }

  /// The leader ends the job: a program that still runs is killed and reported as `alive`.
  void stop(bool hang) {
    reap();
    if (program_ > 0) {
      handle_program();
      end_.alive = true;
      if (const auto where = hang ? where_it_hangs(read_operation()) : ""; !where.empty())
        end_.reason = text("(", where, ")");
      kill(-program_, SIGKILL);
      end_descendants();
      program_ = 0;
      tell_end();
    }
    leader_.flush(1);
    leaving_ = true;
  }

  /// The mpirun of this job, which is the parent of this process, ends shortly after the leader and until then writes
  /// to the folders. It is recognized by the job's key in its environment.
  void end_mpirun() const {
    const auto parent = getppid();
    const bool is_mpirun = has_variable(parent, "TSRUN_KEY=" + variable("TSRUN_KEY"));
    for (const double until = now() + 2; is_mpirun && getppid() == parent && now() < until; wait_for({}, .005))
      kill(parent, SIGKILL);
  }

  /// While tsrun lives, it deletes the folders.
  void use_folders() {
    const auto folders = variable("TSRUN_FOLDERS");
    for (std::size_t begin = 0; begin < folders.size();) {
      const auto end = std::min(folders.find(':', begin), folders.size());
      folders_.push_back(worker::SharedFolder::use(folders.substr(begin, end - begin)));
      folders_.back().keep(true);
      begin = end + 1;
    }
  }

  /// Deletes the folders that the leader would have deleted; the last process of the job that does so leaves none.
  void delete_folders() {
    std::vector<std::string> paths;
    for (const auto& folder : folders_) paths.push_back(folder.path());
    folders_.clear();
    for (const auto& path : paths) worker::SharedFolder::remove_unless_used(path);
  }

  bool leader_is_lost() const {
    return leader_.is_silent_for(leader_time_out_) &&
           leader_.is_silent_for(silence_allowed(leader_time_out_, process_of_leader(memory())));
  }

  const Environment& environment_;
  Connection leader_;
  Descriptor signals_;
  LinkEnds link_;
  pid_t program_ = 0;
  std::optional<WorkerLog> log_;
  bool log_failed_ = false;  ///< it has been reported
  std::string folder_;
  std::list<worker::SharedFolder> folders_;
  int lease_ = 0, longest_save_ = 0,
      leader_time_out_ = LaunchOptions().leader_time_out;  // seconds; values before the start message
  std::uint64_t memory_kills_ = 0;
  bool joining_ = false, joined_ = false, done_ = false, leaving_ = false;
  double last_heartbeat_ = 0;
  double deadline_ = 0, time_of_phase_ = 0;  ///< of the current phase of the program; 0: none
  std::string phase_;
  int to_pass_ = 0;
  double pass_at_ = 0, last_own_signal_ = -1e9;
  WorkerEnd end_;
};

}  // namespace

int run_worker() { return Worker(this_environment()).run(); }

}  // namespace tessera::tsrun
