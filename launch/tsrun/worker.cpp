#include "launch/tsrun/worker.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "framework/comm/launch_link.h"
#include "framework/comm/operation_record.h"
#include "launch/tsrun/cores.h"
#include "launch/tsrun/host.h"
#include "launch/tsrun/log_file.h"
#include "launch/tsrun/memory_kills.h"
#include "launch/tsrun/report.h"
#include "launch/tsrun/worker_environment.h"

namespace tessera {
namespace {

constexpr double beat_seconds = 1, head_silence_seconds = 15;
constexpr double own_signal_seconds = .1;  // a signal to all processes of the job is here by then
constexpr std::size_t lines_to_tell = 20;

/// The program's side of the link is inherited under its number; the words are read at ours.
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

/// Why a living process does nothing, where the system can tell.
std::string state_of(pid_t pid) {
  std::ifstream status(text("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);)
    if (line.rfind("State:", 0) == 0 && line.find('T') != std::string::npos) return "(it is stopped by SIGSTOP)";
  return "";
}

class Worker {
 public:
  explicit Worker(const Environment& environment) : environment_(environment) {}

  int run() {
    adopt_orphans();
    signals_ = catch_signals({SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT});
    signal(SIGPIPE, SIG_IGN);
    if (!connect()) return 1;
    while (!leaving_ && head_.open() && head_.silence() < head_silence_seconds) turn();
    end_descendants();
    if (!leaving_) delete_folders();
    return leaving_ ? 0 : 1;
  }

 private:
  std::string variable(const char* name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  bool connect() {
    const auto head = variable("TSRUN_HEAD");
    const auto colon = head.find(':');
    std::string why = "no TSRUN_HEAD";
    if (colon != std::string::npos)
      head_ = Connection(connect_to({head.substr(0, colon), std::stoi(head.substr(colon + 1))}, 30, why));
    if (!head_.open()) {
      std::cerr << "worker on " << host_name() << ": cannot reach tsrun at " << head << ": " << why << std::endl;
      return false;
    }
    end_.rank = std::stoi("0" + variable("OMPI_COMM_WORLD_RANK"));
    end_.host = host_name();
    head_.send({{"is", "worker"},
                {"key", variable("TSRUN_KEY")},
                {"attempt", variable("TSRUN_ATTEMPT")},
                {"rank", end_.rank},
                {"host", end_.host}});
    return true;
  }

  void turn() {
    pollfd watched[3] = {{head_.number(), static_cast<short>(POLLIN | (head_.wants_to_write() ? POLLOUT : 0)), 0},
                         {signals_.number(), POLLIN, 0},
                         {link_.ours.number(), POLLIN, 0}};
    const double wait = to_pass_ != 0 ? own_signal_seconds : beat_seconds;
    poll(watched, 3, static_cast<int>(wait * 1000));
    head_.write_more();
    for (const auto& message : head_.receive()) obey(message);
    pass_signal();
    hear_program();
    reap();
    if (now() - last_beat_ >= beat_seconds) {
      last_beat_ = now();
      head_.send({{"is", "beat"}, {"place", end_.place}});
    }
  }

  void obey(const Message& message) {
    const std::string what = message.at("is");
    if (what == "start") start(message);
    if (what == "signal") {
      to_pass_ = message.at("signal");
      pass_at_ = now() + own_signal_seconds;
    }
    if (what == "stop") stop();
    if (what == "leave") leaving_ = true;
  }

  /// Who signals all processes of a job (Slurm, systemd) has reached the program, too, and takes a second signal of
  /// ours for the order to stop at once. So what reached this process directly is not passed on.
  void pass_signal() {
    for (const int s : caught(signals_))
      if (s != SIGCHLD) last_own_signal_ = now();
    if (to_pass_ == 0 || now() < pass_at_) return;
    if (program_ > 0 && pass_at_ - last_own_signal_ > 2) kill(-program_, to_pass_);
    to_pass_ = 0;
  }

  void start(const Message& message) {
    end_.host = message.at("host");
    try {
      launch(message);
    } catch (const std::exception& error) {
      end_.code = 127;
      end_.reason = error.what();
      tell_end();
    }
  }

  void launch(const Message& message) {
    const auto place = message.at("place").get<WorkerPlace>();
    const auto cores = usable_cores();
    Spawn program;
    program.words = message.at("program").get<std::vector<std::string>>();
    program.folder = message.at("folder");
    program.cores = bound_cores(message.at("bind_core"), place.local_rank, place.local_workers, cores);
    program.environment = worker_environment(place, message.at("environment").get<Environment>(), environment_,
                                             static_cast<int>(cores.size()));
    if (!program.cores.empty()) {
      program.environment["MSRUN_CPU_LIST"] = core_list(program.cores);
      program.environment.emplace("OMP_NUM_THREADS", std::to_string(program.cores.size()));
    }
    link_ = make_link();
    program.kept = link_.theirs.number();
    program.environment["TESSERA_LAUNCH_LINK"] = link_.variable();
    folder_ = message.at("launch_folder");
    program.environment["TESSERA_LAUNCH_FOLDER"] = folder_;
    log_ = message.at("log").get<std::string>();
    const Descriptor log(open_log(log_, message.at("header")));
    std::error_code absent;
    log_begin_ = std::filesystem::file_size(log_, absent);
    program.output = log.number();
    memory_kills_ = memory_kills();
    program_ = spawn(program);
    link_.theirs.close();
  }

  void hear_program() {
    char packet[16384];
    while (link_.ours) {
      const auto size = recv(link_.ours.number(), packet, sizeof packet, MSG_DONTWAIT);
      if (size == 0) link_.ours.close();
      if (size <= 0) return;
      const std::string about(packet + 1, static_cast<std::size_t>(size - 1));
      switch (static_cast<LinkWord>(packet[0])) {
        case LinkWord::joining:
          head_.send({{"is", "joining"}});
          break;
        case LinkWord::joined:
          joined_ = true;
          head_.send({{"is", "joined"}});
          break;
        case LinkWord::place:
          end_.place = about;
          break;
        case LinkWord::failed:
        case LinkWord::lost_peer:
          end_.reason = about;
          end_.lost_peer = static_cast<LinkWord>(packet[0]) == LinkWord::lost_peer;
          break;
        case LinkWord::done:
          done_ = true;
          break;
      }
    }
  }

  void reap() {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
      if (pid != program_) continue;  // an orphan of the program
      hear_program();
      program_ = 0;
      end_.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      end_.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      end_.for_memory = end_.signal == SIGKILL && memory_kills() > memory_kills_;
      end_.unfinished = joined_ && !done_;
      end_descendants();
      tell_end();
    }
  }

  /// Into `end_`: what the program did with the others, from the record that it keeps if it is tessera.
  void read_operation(const std::string& folder) {
    const auto record = OperationRecord::open(operations_file(folder, end_.rank));
    const auto places = record ? record->read() : std::vector<OperationPlace>();
    if (!places.empty()) end_.operation = describe(places.front(), OperationRecord::now());
  }

  void tell_end() {
    read_operation(folder_);
    if (!log_.empty()) end_.last_lines = last_lines(log_, log_begin_, lines_to_tell);
    Message message = end_;
    message["is"] = "ended";
    head_.send(message);
  }

  /// The head wants an end: a program that still runs is killed, and told to have been alive.
  void stop() {
    reap();
    if (program_ > 0) {
      hear_program();
      end_.alive = true;
      end_.reason = state_of(program_);
      kill(-program_, SIGKILL);
      end_descendants();
      program_ = 0;
      tell_end();
    }
    head_.flush(1);
    leaving_ = true;
  }

  /// The head would have deleted them; the last worker to come here leaves none.
  void delete_folders() const {
    const auto folders = variable("TSRUN_FOLDERS");
    std::error_code ignored;
    for (std::size_t begin = 0; begin < folders.size();) {
      const auto end = std::min(folders.find(':', begin), folders.size());
      std::filesystem::remove_all(folders.substr(begin, end - begin), ignored);
      begin = end + 1;
    }
  }

  const Environment& environment_;
  Connection head_;
  Descriptor signals_;
  LinkEnds link_;
  pid_t program_ = 0;
  std::filesystem::path log_;
  std::string folder_;
  std::uint64_t log_begin_ = 0, memory_kills_ = 0;
  bool joined_ = false, done_ = false, leaving_ = false;
  double last_beat_ = 0;
  int to_pass_ = 0;
  double pass_at_ = 0, last_own_signal_ = -1e9;
  WorkerEnd end_;
};

}  // namespace

int run_worker() { return Worker(this_environment()).run(); }

}  // namespace tessera
