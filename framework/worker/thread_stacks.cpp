#include "framework/worker/thread_stacks.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

namespace tessera::worker {
namespace {

constexpr int most_frames = 48;
constexpr int own_frames = 2;                  // the handler, and the frame through which the kernel returns
constexpr std::int64_t wait_for_thread = 100;  // milliseconds

// Shared with the signal handlers. A thread that answers after nobody waits for it any more must not write into the
// frames of the next thread: it writes only if `asked_thread` is still its own id.
std::array<void*, most_frames> frames;
std::atomic<int> asked_thread = 0;  ///< id of the thread whose frames are wanted; 0: none
int frame_count = 0;
std::atomic<bool> ending = false;
sem_t asked, answered;
struct sigaction former_action {};

int thread_id() { return static_cast<int>(syscall(SYS_gettid)); }

void on_signal(int, siginfo_t* about, void*) {
  const int former_errno = errno;
  if (about->si_code != SI_TKILL) {
    sem_post(&asked);
  } else if (int own = thread_id(); asked_thread.compare_exchange_strong(own, 0)) {
    frame_count = backtrace(frames.data(), most_frames);
    sem_post(&answered);
  }
  errno = former_errno;
}

std::string name_of(void* address) {
  Dl_info found{};
  std::ostringstream words;
  if (dladdr(address, &found) == 0) {
    words << address;
  } else if (found.dli_sname != nullptr) {
    int status = 0;
    const std::unique_ptr<char, decltype(&std::free)> readable(
        abi::__cxa_demangle(found.dli_sname, nullptr, nullptr, &status), &std::free);
    words << (status == 0 ? readable.get() : found.dli_sname);
  } else {
    words << found.dli_fname << "+0x" << std::hex << static_cast<char*>(address) - static_cast<char*>(found.dli_fbase);
  }
  return words.str();
}

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string stack_of(int thread) {
  const auto folder = "/proc/self/task/" + std::to_string(thread);
  std::string all = "thread " + std::to_string(thread) + " (" + first_line(folder + "/comm") + ")";
  timespec until{};
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += wait_for_thread * 1'000'000;
  until.tv_sec += until.tv_nsec / 1'000'000'000;
  until.tv_nsec %= 1'000'000'000;
  asked_thread = thread;
  const bool sent = syscall(SYS_tgkill, getpid(), thread, stacks_signal()) == 0;
  int waited = -1;
  while (sent && (waited = sem_timedwait(&answered, &until)) != 0 && errno == EINTR) {
  }
  // A thread that has taken the request at the last moment is writing its frames now and will finish soon.
  int expected = thread;
  if (waited != 0 && sent && !asked_thread.compare_exchange_strong(expected, 0))
    while ((waited = sem_wait(&answered)) != 0 && errno == EINTR) {
    }
  if (waited != 0) return all + " does not answer; it waits in the kernel in " + first_line(folder + "/wchan") + "\n";
  all += ":\n";
  for (int i = own_frames; i < frame_count; ++i) all += "  " + name_of(frames[static_cast<std::size_t>(i)]) + "\n";
  return all;
}

std::vector<int> other_threads() {
  std::vector<int> all;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task", problem))
    if (const int thread = std::atoi(entry.path().filename().c_str()); thread != thread_id()) all.push_back(thread);
  return all;
}

/// Each stack is written as soon as it is known, so that a stack that cannot be read does not hide the others.
void write_out(const std::string& words) {
  for (std::size_t done = 0; done < words.size();) {
    const auto written = ::write(STDERR_FILENO, words.data() + done, words.size() - done);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) done += static_cast<std::size_t>(written);
  }
}

void serve() {
  for (;;) {
    while (sem_wait(&asked) != 0) {
    }
    if (ending) return;
    const auto threads = other_threads();
    write_out("stacks of the " + std::to_string(threads.size()) + " threads of process " + std::to_string(getpid()) +
              "\n");
    for (const int thread : threads) write_out(stack_of(thread));
    write_out(std::string(end_of_stacks) + "\n");
  }
}

}  // namespace

int stacks_signal() { return SIGRTMIN + 9; }

ThreadStacks::ThreadStacks() {
  backtrace(frames.data(), 1);  // loads the unwinder, which must not happen in a handler
  sem_init(&asked, 0, 0);
  sem_init(&answered, 0, 0);
  ending = false;
  struct sigaction action {};
  action.sa_sigaction = on_signal;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  sigaction(stacks_signal(), &action, &former_action);
  writer_ = std::thread(serve);
}

ThreadStacks::~ThreadStacks() {
  sigaction(stacks_signal(), &former_action, nullptr);
  ending = true;
  sem_post(&asked);
  writer_.join();
}

}  // namespace tessera::worker
