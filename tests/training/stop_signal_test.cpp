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

TEST(StopSignalDeathTest, ALateRequestAfterTheEndOfTheRunLeavesItsExitCode) {
  for (const bool asked_before : {false, true})
    EXPECT_EXIT(
        {
          {
            StopSignal stop;
            if (asked_before) std::raise(SIGTERM);
            stop.keep_until_exit(22);
          }
          std::raise(SIGTERM);
          std::_Exit(22);
        },
        testing::ExitedWithCode(22), "");
}

TEST(StopSignalDeathTest, TheSecondSignalAfterTheEndOfTheRunEndsTheProcessWithItsExitCode) {
  EXPECT_EXIT(
      {
        StopSignal stop;
        std::raise(SIGTERM);
        stop.keep_until_exit(0);
        for (const int number : {SIGHUP, SIGUSR1, SIGHUP, SIGINT}) std::raise(number);
        std::_Exit(7);
      },
      testing::ExitedWithCode(0), "");
}

TEST(StopSignalDeathTest, AnotherRunOfTheProcessIsAskedAnew) {
  EXPECT_EXIT(
      {
        StopSignal().keep_until_exit(0);
        const StopSignal stop;
        std::raise(SIGTERM);
        if (!stop.asked()) std::_Exit(7);
        std::raise(SIGTERM);
        std::_Exit(7);
      },
      testing::ExitedWithCode(128 + SIGTERM), "");
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
  heard = 0;
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
