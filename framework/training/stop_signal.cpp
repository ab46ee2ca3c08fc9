#include "framework/training/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

constexpr int not_watching = -1;
/// The number of the first signal, 0 before it. A handler gets no argument, so this cannot be a member.
std::atomic<int> received = not_watching;
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_signal(int number) {
  int none = 0;
  if (!received.compare_exchange_strong(none, number)) _exit(128 + number);
}

}  // namespace

StopSignal::StopSignal() {
  int idle = not_watching;
  must(received.compare_exchange_strong(idle, 0), "one StopSignal lives at a time");
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // interrupted reads and writes continue
  sigaction(SIGTERM, &action, &before_[0]);
  sigaction(SIGINT, &action, &before_[1]);
}

StopSignal::~StopSignal() {
  sigaction(SIGTERM, &before_[0], nullptr);
  sigaction(SIGINT, &before_[1], nullptr);
  received = not_watching;
}

int StopSignal::signal() const { return received; }

const char* StopSignal::name_of(int number) { return number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : ""; }

}  // namespace tessera::training
