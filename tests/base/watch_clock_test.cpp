#include "framework/base/watch_clock.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

double source_seconds = 0;
double source() { return source_seconds; }

TEST(WatchClock, IsTheSystemsClockWhileItIsReadOften) {
  source_seconds = 100;
  WatchClock clock(source);
  EXPECT_DOUBLE_EQ(clock.seconds(), 100);
  for (int i = 0; i < 40; ++i) {
    source_seconds += .25;
    clock.seconds();
  }
  EXPECT_DOUBLE_EQ(clock.seconds(), 110);
}

TEST(WatchClock, DoesNotCountATimeInWhichThisProcessWasLate) {
  source_seconds = 100;
  WatchClock clock(source);
  clock.seconds();
  source_seconds += 3600;
  EXPECT_DOUBLE_EQ(clock.seconds(), 100 + WatchClock::longest_gap);
  source_seconds += .5;
  EXPECT_DOUBLE_EQ(clock.seconds(), 100.5 + WatchClock::longest_gap);
}

TEST(WatchClock, AWaitCountsAsLongAsItShouldHaveTaken) {
  source_seconds = 100;
  WatchClock clock(source);
  clock.seconds();
  source_seconds += 3600;
  clock.waited(.125);
  EXPECT_DOUBLE_EQ(clock.seconds(), 100.125);
  source_seconds += .0625;  // what it waited for came earlier
  clock.waited(.125);
  EXPECT_DOUBLE_EQ(clock.seconds(), 100.1875);
  source_seconds += 5;
  clock.waited(8);
  EXPECT_DOUBLE_EQ(clock.seconds(), 105.1875) << "a wait may be longer than longest_gap";
}

TEST(WatchClock, NeverGoesBack) {
  source_seconds = 100;
  WatchClock clock(source);
  clock.seconds();
  source_seconds = 50;
  EXPECT_DOUBLE_EQ(clock.seconds(), 100);
  source_seconds = 50.5;
  EXPECT_DOUBLE_EQ(clock.seconds(), 100.5);
}

}  // namespace
}  // namespace tessera
