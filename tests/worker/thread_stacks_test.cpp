#include "framework/worker/thread_stacks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace tessera::worker {
namespace {

/// What a child process with ThreadStacks writes to standard error until it says the end, at the last of `times` times
/// or later: it is asked until the `expected` words are there, because its threads come to their work when the machine
/// lets them. `work`: what its main thread does once it has written "ready".
template <class Work>
std::string stacks_of_child(int times, const std::vector<std::string>& expected, Work work) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    const ThreadStacks stacks;
    EXPECT_EQ(::write(STDERR_FILENO, "ready\n", 6), 6);
    work();
    _exit(0);
  }
  close(ends[1]);
  std::string all;
  const auto read_until = [&](const std::string& words) {
    char bytes[4096];
    pollfd watched = {ends[0], POLLIN, 0};
    while (all.find(words) == std::string::npos && poll(&watched, 1, 120000) == 1) {
      const auto count = ::read(ends[0], bytes, sizeof bytes);
      if (count <= 0) break;
      all.append(bytes, static_cast<std::size_t>(count));
    }
  };
  read_until("ready\n");
  const auto is_there = [&](const std::string& word) { return all.find(word) != std::string::npos; };
  for (int i = 0; i < times || (i < 200 && !std::all_of(expected.begin(), expected.end(), is_there)); ++i) {
    all.clear();
    usleep(20000);
    kill(child, stacks_signal());
    read_until(end_of_stacks);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(ends[0]);
  return all;
}

TEST(ThreadStacksTest, NamesWhereEachThreadBlocksAsOftenAsItIsAsked) {
  const auto told = stacks_of_child(3, {"pause", "nanosleep"}, [] {
    std::thread other([] {
      for (;;) ::pause();
    });
    for (;;) ::sleep(1000);
  });
  EXPECT_NE(told.find("stacks of the "), std::string::npos) << told;  // 2 threads; ThreadSanitizer has one, too
  EXPECT_NE(told.find("pause"), std::string::npos) << told;
  EXPECT_NE(told.find("nanosleep"), std::string::npos) << told;
  EXPECT_NE(told.find(end_of_stacks), std::string::npos) << told;
}

TEST(ThreadStacksTest, AThreadThatBlocksTheSignalDoesNotHideTheOthers) {
  const auto told = stacks_of_child(2, {"does not answer", "pause"}, [] {
    std::thread other([] {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, nullptr);
      for (;;) ::sleep(1000);
    });
    for (;;) ::pause();
  });
  EXPECT_NE(told.find("does not answer"), std::string::npos) << told;
  EXPECT_NE(told.find("pause"), std::string::npos) << told;
  EXPECT_NE(told.find(end_of_stacks), std::string::npos) << told;
}

}  // namespace
}  // namespace tessera::worker
