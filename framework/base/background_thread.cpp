#include "framework/base/background_thread.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tessera {

void run_in_background() noexcept {
  // On Linux both are properties of a thread. ioprio_set has no declaration; the numbers are those of linux/ioprio.h.
  constexpr int lowest = 19, one_thread = 1, idle_class = 3, class_shift = 13;
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), lowest));
  static_cast<void>(::syscall(SYS_ioprio_set, one_thread, 0, idle_class << class_shift));
}

}  // namespace tessera
