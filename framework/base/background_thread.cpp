#include "framework/base/background_thread.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tessera {

namespace {

// On Linux both are properties of a thread. ioprio_set has no declaration; the numbers are those of linux/ioprio.h.
constexpr int background_nice = 10, one_thread = 1, no_class = 0, idle_class = 3, class_shift = 13;

void set(int thread, int nice, int disk_class) noexcept {
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(thread), nice));
  static_cast<void>(::syscall(SYS_ioprio_set, one_thread, thread, disk_class << class_shift));
}

}  // namespace

int run_in_background() noexcept {
  const auto thread = static_cast<int>(::syscall(SYS_gettid));
  set(thread, background_nice, idle_class);
  return thread;
}

void run_in_foreground(int thread) noexcept { set(thread, ::getpriority(PRIO_PROCESS, 0), no_class); }

}  // namespace tessera
