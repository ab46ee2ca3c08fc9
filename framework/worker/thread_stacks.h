#pragma once

#include <thread>

namespace tessera::worker {

/// The signal that asks a process with ThreadStacks for its stacks: a real-time signal, which no other part uses.
int stacks_signal();
/// The last line of what such a process writes.
inline constexpr const char* end_of_stacks = "end of the stacks";

/// While it lives, the process answers stacks_signal(), sent by another process, with the call stacks of all its
/// threads on standard error: where a process is that does nothing any more. One at a time; it needs a thread, which
/// sleeps.
///
/// Each thread records its own stack in a signal handler, so a thread that blocks in a system call tells where, too. A
/// thread that does not run, because the process is stopped or the thread waits in the kernel without reacting to
/// signals, is named without a stack. Names of functions are those that the executable exports (ENABLE_EXPORTS); other
/// frames are "program+0x1234", for addr2line.
class ThreadStacks {
 public:
  ThreadStacks();
  ~ThreadStacks();
  ThreadStacks(const ThreadStacks&) = delete;
  ThreadStacks& operator=(const ThreadStacks&) = delete;

 private:
  std::thread writer_;
};

}  // namespace tessera::worker
