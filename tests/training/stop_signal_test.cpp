#include "framework/training/guards/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "framework/base/error.h"
#include "framework/worker/stop_signals.h"

namespace tessera::training {
namespace {

TEST(StopSignal, TheFirstSignalOnlyAsks) {
  const StopSignal stop;
  EXPECT_FALSE(stop.asked());
  std::raise(SIGTERM);
  EXPECT_TRUE(stop.asked());
  EXPECT_EQ(stop.signal(), SIGTERM);
}

TEST(StopSignal, EachOneBeginsUnasked) {
  {
    const StopSignal stop;
    std::raise(SIGINT);
    EXPECT_EQ(stop.signal(), SIGINT);
  }
  const StopSignal stop;
  EXPECT_FALSE(stop.asked());
}

TEST(StopSignalDeathTest, TheSecondSignalEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        const StopSignal stop;
        std::raise(SIGTERM);
        std::raise(SIGINT);
        std::_Exit(0);
      },
      testing::ExitedWithCode(128 + SIGINT), "");
}

TEST(StopSignal, EverySignalOfATerminalOrASchedulerAsks) {
  for (const int number : worker::stop_signals) {
    const StopSignal stop;
    std::raise(number);
    EXPECT_EQ(stop.signal(), number);
  }
}

TEST(StopSignal, AWarningAfterARequestDoesNothing) {
  const StopSignal stop;
  for (const int number : {SIGHUP, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) std::raise(number);
  EXPECT_EQ(stop.signal(), SIGHUP);
}

TEST(StopSignalDeathTest, AnOrderAfterAWarningEndsTheProcessAtOnce) {
  for (const int number : {SIGINT, SIGTERM, SIGQUIT})
    EXPECT_EXIT(
        {
          const StopSignal stop;
          std::raise(SIGHUP);
          std::raise(number);
          std::_Exit(0);
        },
        testing::ExitedWithCode(128 + number), "");
}

TEST(StopSignal, AWarningThatWasIgnoredStaysIgnored) {
  for (const int number : {SIGHUP, SIGINT}) {
    const auto before = std::signal(number, SIG_IGN);
    {
      const StopSignal stop;
      std::raise(number);
      EXPECT_EQ(stop.asked(), number == SIGINT) << number;
    }
    EXPECT_EQ(std::signal(number, before), SIG_IGN);
  }
}

int heard = 0;
extern "C" void listen(int) { ++heard; }

TEST(StopSignal, TheHandlersFromBeforeComeBack) {
  const auto before = std::signal(SIGTERM, listen);
  {
    const StopSignal stop;
    std::raise(SIGTERM);
    EXPECT_EQ(heard, 0);
  }
  std::raise(SIGTERM);
  EXPECT_EQ(heard, 1);
  std::signal(SIGTERM, before);
}

TEST(StopSignal, ThereIsOneAtATime) {
  const StopSignal stop;
  EXPECT_THROW(StopSignal(), BugError);
}

}  // namespace
}  // namespace tessera::training
