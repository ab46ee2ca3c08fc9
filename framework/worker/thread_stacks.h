#pragma once

#include <thread>

namespace tessera::worker {

/// The signal that asks a process with ThreadStacks for its stacks: a real-time signal that Tessera uses for nothing
/// else.
int stacks_signal();
/// The last line that the process writes for such a request.
inline constexpr const char* end_of_stacks = "end of the stacks";

/// While an object exists, the process answers stacks_signal(), sent by another process, by writing the call stacks of
/// all its threads to standard error. It shows where a process hangs. At most one object may exist. It owns a thread,
/// which sleeps until the signal arrives.
///
/// Each thread records its own stack in a signal handler, so the stack of a thread that blocks in a system call is
/// shown, too. A thread that does not answer within 0.1 s, because it waits in the kernel without reacting to signals,
/// is listed without a stack. Function names are those that the executable exports (ENABLE_EXPORTS); other frames are
/// shown as "program+0x1234", for addr2line.
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
