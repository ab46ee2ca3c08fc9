#include "framework/worker/stop_signals.h"

#include <cstring>

#include "framework/base/error.h"

namespace tessera::worker {
namespace {

bool is_ignored(int signal) {
  struct sigaction action {};
  return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

std::vector<int> obeyed_stop_signals() {
  std::vector<int> all;
  for (const int signal : stop_signals)
    if (ends_at_once(signal) || !is_ignored(signal)) all.push_back(signal);
  return all;
}

std::string name_of_signal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name != nullptr ? text("SIG", name) : text("signal ", signal);
}

}  // namespace tessera::worker
