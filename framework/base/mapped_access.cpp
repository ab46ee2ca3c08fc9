#include "framework/base/mapped_access.h"

#include <csetjmp>
#include <csignal>
#include <mutex>

namespace tessera {
namespace {

thread_local sigjmp_buf* return_point = nullptr;  ///< of this thread's current access_mapped call; null: none
struct sigaction former_action {};                ///< of SIGBUS

void on_bus_error(int, siginfo_t* info, void*) {
  const bool by_access = info->si_code > 0;  // else a process sent the signal
  if (by_access && return_point != nullptr) siglongjmp(*return_point, 1);
  sigaction(SIGBUS, &former_action, nullptr);
  if (!by_access) raise(SIGBUS);  // an access is repeated when this returns, and meets the former action
}

void install() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;  // not deferred: the jump leaves the handler without restoring the mask
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &former_action);
  });
}

}  // namespace

bool access_mapped(void (*access)(const void* argument), const void* argument) {
  install();
  sigjmp_buf here;
  if (sigsetjmp(here, 0) != 0) {
    return_point = nullptr;
    return false;
  }
  return_point = &here;
  access(argument);
  return_point = nullptr;
  return true;
}

}  // namespace tessera
