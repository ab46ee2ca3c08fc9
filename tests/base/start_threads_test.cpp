#include "framework/base/start_threads.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <iostream>

#include "framework/base/error.h"
#include "tests/sanitized.h"

namespace tessera {
namespace {

TEST(StartThreads, EachGetsItsNumber) {
  std::atomic<int> sum = 0;
  std::vector<std::thread> threads;
  start_threads(
      threads, 4, "a test", "", [&sum](std::size_t i) { sum += static_cast<int>(i) + 1; }, [] {});
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(sum, 1 + 2 + 3 + 4);
}

/// In a process whose memory holds the stacks of a few of them only.
[[noreturn]] void start_too_many() {
  const rlimit small{std::size_t{1} << 28, std::size_t{1} << 28};
  setrlimit(RLIMIT_AS, &small);
  const rlimit stack{std::size_t{8} << 20, std::size_t{8} << 20};
  setrlimit(RLIMIT_STACK, &stack);
  std::atomic<bool> over = false;
  std::vector<std::thread> threads;
  try {
    start_threads(
        threads, 500, "computation", "num_threads", [&over](std::size_t) { over.wait(false); },
        [&over] {
          over = true;
          over.notify_all();
        });
  } catch (const ConfigError& error) {
    std::cerr << error.what();
    std::exit(threads.empty() ? 7 : 1);
  }
  std::exit(2);
}

TEST(StartThreads, ARefusedThreadIsAnErrorAfterTheOthersEnded) {
  if (sanitized) GTEST_SKIP() << "a sanitizer needs more memory than the limit";
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(7),
              "computation: only [0-9]+ of 500 threads could be started .*, or make num_threads smaller");
}

}  // namespace
}  // namespace tessera
