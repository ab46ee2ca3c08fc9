#include "launch/tsrun/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "framework/worker/stop_signals.h"

extern char** environ;  // NOLINT: the C library's

namespace tessera::tsrun {
namespace {

namespace fs = std::filesystem;

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> all;
  for (const auto& word : words) all.push_back(const_cast<char*>(word.c_str()));
  all.push_back(nullptr);
  return all;
}

/// Gives up the controlling terminal: a background process that reads from it would be stopped, and without one the
/// read fails. A new session would do so, too, but Linux shares the cores between sessions (autogroup, sched(7)):
/// `nice` acts only within one, and Linux 6.18 at times let a job in a session of its own wait for minutes beside a
/// busy one.
void leave_terminal() {
  const int terminal = open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (terminal < 0) return;  // it has none
  ioctl(terminal, TIOCNOTTY);
  close(terminal);
}

/// Runs in the child until the program begins: only async-signal-safe calls are allowed after fork.
[[noreturn]] void become(const Spawn& what, char* const* words, char* const* variables, int failure, pid_t parent) {
  sigset_t blocked;
  sigemptyset(&blocked);
  if (what.deaf)
    for (const int s : worker::stop_signals) sigaddset(&blocked, s);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  for (int s = 1; s < NSIG; s++) signal(s, SIG_DFL);
  if (!what.outlives) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!what.outlives && getppid() != parent) _exit(127);
  setpgid(0, 0);
  if (what.leaves_terminal) leave_terminal();
  const int input = what.input >= 0 ? what.input : open("/dev/null", O_RDONLY);
  bool good = dup2(input, 0) == 0;
  if (what.output >= 0) good = good && dup2(what.output, 1) == 1 && dup2(what.output, 2) == 2;
  if (what.kept >= 0) fcntl(what.kept, F_SETFD, 0);
  if (!what.cores.empty()) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : what.cores) CPU_SET(static_cast<std::size_t>(core), &set);
    good = good && sched_setaffinity(0, sizeof set, &set) == 0;
  }
  if (!what.host_name.empty())
    good = good && unshare(CLONE_NEWUTS) == 0 && sethostname(what.host_name.data(), what.host_name.size()) == 0;
  if (!what.folder.empty()) good = good && chdir(what.folder.c_str()) == 0;
  if (good) execve(words[0], words, variables);
  const int reason = errno;
  static_cast<void>(!write(failure, &reason, sizeof reason));
  _exit(127);
}

/// Maps the id of every process of the system to the id of its parent.
std::map<pid_t, pid_t> parents() {
  std::map<pid_t, pid_t> all;
  std::error_code gone;
  for (fs::directory_iterator entry("/proc", gone), end; !gone && entry != end; entry.increment(gone)) {
    const auto name = entry->path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry->path() / "stat");
    std::string line;
    std::getline(file, line);
    const auto close = line.rfind(')');
    if (close == std::string::npos) continue;
    std::istringstream rest(line.substr(close + 1));
    char state = 0;
    pid_t parent = 0;
    rest >> state >> parent;
    if (state != 'Z') all[static_cast<pid_t>(std::stol(name))] = parent;
  }
  return all;
}

/// Descendants of this process, without the processes in `but` and their descendants.
std::vector<pid_t> descendants(const std::set<pid_t>& but = {}) {
  const auto all = parents();
  std::vector<pid_t> found = {getpid()};
  for (std::size_t i = 0; i < found.size(); i++)
    for (const auto& [child, parent] : all)
      if (parent == found[i] && but.count(child) == 0) found.push_back(child);
  found.erase(found.begin());
  return found;
}

}  // namespace

Environment this_environment() {
  Environment all;
  for (char** variable = environ; *variable != nullptr; variable++) {
    const std::string words = *variable;
    const auto equal = words.find('=');
    if (equal != std::string::npos) all.emplace(words.substr(0, equal), words.substr(equal + 1));
  }
  return all;
}

pid_t spawn(const Spawn& what) {
  std::vector<std::string> variables;
  for (const auto& [name, value] : what.environment) variables.push_back(name + "=" + value);
  const auto words = pointers(what.words);
  const auto values = pointers(variables);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(text("pipe: ", std::strerror(errno)));
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw Error(text("cannot start a process: ", std::strerror(errno)));
  if (child == 0) become(what, words.data(), values.data(), writing.number(), parent);
  writing.close();
  int reason = 0;
  if (read(reading.number(), &reason, sizeof reason) == sizeof reason) {
    waitpid(child, nullptr, 0);
    throw Error(text(what.words[0], " cannot be started: ", std::strerror(reason)));
  }
  return child;
}

void adopt_orphans() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

void end_descendants(const std::set<pid_t>& but) {
  for (const double until = now() + 2; now() < until;) {
    const auto living = descendants(but);
    for (const auto pid : living) kill(pid, SIGKILL);
    pid_t reaped = 0;
    do reaped = waitpid(-1, nullptr, WNOHANG);
    while (reaped > 0);
    if (living.empty() && (reaped < 0 || !but.empty())) return;  // no child is left, not even a zombie
    wait_for({}, .005);
  }
}

bool has_variable(pid_t process, const std::string& begins) {
  std::ifstream file(text("/proc/", process, "/environ"));
  for (std::string one; std::getline(file, one, '\0');)
    if (one.rfind(begins, 0) == 0) return true;
  return false;
}

std::string variable_of(pid_t process, const std::string& name) {
  std::ifstream file(text("/proc/", process, "/environ"));
  for (std::string one; std::getline(file, one, '\0');)
    if (one.rfind(name + "=", 0) == 0) return one.substr(name.size() + 1);
  return "";
}

ProcessStatus::ProcessStatus(pid_t process) {
  std::ifstream status(text("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    const auto value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (value == std::string::npos) continue;
    if (line.rfind("State:", 0) == 0) state = line[value];
    if (line.rfind("SigCgt:", 0) == 0) caught_signals = std::strtoull(line.c_str() + value, nullptr, 16);
  }
}

bool runs_tsrun(pid_t process) {
  std::error_code gone;
  const auto program = fs::read_symlink(text("/proc/", process, "/exe"), gone);
  return !gone && program == own_path();
}

double silence_allowed(double time_out, pid_t process) {
  return process > 0 && ProcessStatus(process).is_held_up() ? held_up_factor * time_out : time_out;
}

std::vector<pid_t> workers_below() {
  auto all = descendants();
  std::erase_if(all, [](pid_t pid) { return !has_variable(pid, "OMPI_COMM_WORLD_RANK="); });
  return all;
}

Descriptor catch_signals(const std::vector<int>& signals) {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : signals) sigaddset(&set, s);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  return Descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

Descriptor catch_stop_signals() {
  signal(SIGCHLD, SIG_DFL);
  auto all = worker::obeyed_stop_signals();
  all.push_back(SIGCHLD);
  return catch_signals(all);
}

std::vector<int> caught(const Descriptor& signals) {
  std::vector<int> all;
  signalfd_siginfo info = {};
  while (read(signals.number(), &info, sizeof info) == sizeof info) all.push_back(static_cast<int>(info.ssi_signo));
  return all;
}

std::string signal_words(int signal) {
  const char* name = sigabbrev_np(signal);
  return text("signal ", signal, name != nullptr ? text(" (SIG", name, ")") : "");
}

std::string own_path() { return fs::read_symlink("/proc/self/exe"); }

std::string find_program(const std::string& name, const Environment& environment) {
  const auto runs = [](const fs::path& path) { return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path); };
  if (name.find('/') != std::string::npos) {
    if (runs(name)) return fs::absolute(name);
    throw ConfigError(text(name, fs::exists(name) ? " is not executable" : ": there is no such program"));
  }
  const auto path = environment.find("PATH");
  std::istringstream folders(path == environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second);
  for (std::string folder; std::getline(folders, folder, ':');)
    if (runs(fs::path(folder.empty() ? "." : folder) / name)) return fs::absolute(fs::path(folder) / name);
  const auto beside = fs::path(own_path()).parent_path() / name;
  if (runs(beside)) return beside;
  throw ConfigError(text("there is no program '", name, "' in PATH or beside tsrun"));
}

}  // namespace tessera::tsrun
