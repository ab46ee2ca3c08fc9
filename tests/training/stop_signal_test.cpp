#include "framework/training/stop_signal.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "framework/base/error.h"

namespace tessera::training {
namespace {

TEST(StopSignal, TheFirstSignalOnlyAsks) {
  const StopSignal stop;
  EXPECT_FALSE(stop.asked());
  std::raise(SIGTERM);
  EXPECT_TRUE(stop.asked());
  EXPECT_EQ(stop.signal(), SIGTERM);
  EXPECT_EQ(std::string(stop.name()), "SIGTERM");
}

TEST(StopSignal, EachOneBeginsUnasked) {
  {
    const StopSignal stop;
    std::raise(SIGINT);
    EXPECT_EQ(std::string(stop.name()), "SIGINT");
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
