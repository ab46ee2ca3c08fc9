#include "framework/training/guards/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "framework/base/error.h"
#include "framework/worker/stop_signals.h"

namespace tessera::training {
namespace {

constexpr int not_watching = -1, no_code = -1;
/// The number of the first signal, 0 before it. A handler gets no argument, so this cannot be a member.
std::atomic<int> received = not_watching;
/// The exit code of a run that has ended in order; `no_code` before.
std::atomic<int> exit_code_of_run = no_code;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_signal(int number) {
  int before = 0;
  if (received.compare_exchange_strong(before, number) || !worker::ends_at_once(number)) return;
  const int code = exit_code_of_run;
  _exit(code != no_code ? code : 128 + number);
}

}  // namespace

StopSignal::StopSignal() {
  if (exit_code_of_run.exchange(no_code) != no_code) received = not_watching;  // of an earlier run of this process
  int idle = not_watching;
  must(received.compare_exchange_strong(idle, 0), "one StopSignal lives at a time");
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // interrupted reads and writes continue
  for (const int number : worker::obeyed_stop_signals()) {
    before_.emplace_back(number, action);
    sigaction(number, &action, &before_.back().second);
  }
}

StopSignal::~StopSignal() {
  if (exit_code_of_run != no_code) return;
  for (const auto& [number, action] : before_) sigaction(number, &action, nullptr);
  received = not_watching;
}

int StopSignal::signal() const { return received; }

void StopSignal::keep_until_exit(int exit_code) {
  exit_code_of_run = exit_code;
  received = 0;
}

}  // namespace tessera::training
