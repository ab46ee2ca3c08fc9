#include "framework/resilience/faults.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "framework/base/error.h"
#include "tests/story.h"

namespace tessera::resilience {
namespace {

TEST(Faults, AreReadAsRankStepPhaseModeAndStart) {
  const auto fault = read_fault("2:30:update:segv");
  EXPECT_EQ(fault.rank, 2);
  EXPECT_EQ(fault.step, 30);
  EXPECT_EQ(fault.phase, Phase::update);
  EXPECT_EQ(fault.mode, FaultMode::segv);
  EXPECT_EQ(fault.start, 0);
  EXPECT_EQ(read_fault("2:30:update:segv:4").start, 4);
  EXPECT_EQ(read_fault("2:30:update:segv:*").start, -1);
}

TEST(Faults, WhatIsWrongIsNamed) {
  const auto story = [](const char* words) { return story_of([&] { read_fault(words); }); };
  EXPECT_TRUE(says(story("1:2:update"), "3 parts; expected RANK:STEP:PHASE:MODE")) << story("1:2:update");
  EXPECT_TRUE(says(story("1:2:updat:kill"), "'updat' is not a phase; known: start, forward, reduce, commit, update"));
  EXPECT_TRUE(says(story("1:2:update:die"), "'die' is not a mode; known: kill, term, segv"));
  EXPECT_TRUE(says(story("-1:2:update:kill"), "'-1' is not a rank"));
  EXPECT_TRUE(says(story("1:2x:update:kill"), "'2x' is not a step"));
  EXPECT_TRUE(says(story("1:2:update:kill:first"), "'first' is not a start"));
}

TEST(Faults, ComeToTheirRankStepPhaseAndStartOnly) {
  const std::vector<std::string> words = {"1:2:report:error", "1:3:report:error:*", "0:2:report:error"};
  Faults first(words, 1, 2, 0), second(words, 1, 2, 1);
  EXPECT_TRUE(first.expects(2, Phase::report));
  EXPECT_FALSE(first.expects(2, Phase::update));
  EXPECT_FALSE(second.expects(2, Phase::report));
  EXPECT_TRUE(second.expects(3, Phase::report));
  EXPECT_NO_THROW(second.reach(2, Phase::report));
  EXPECT_THROW(first.reach(2, Phase::report), Error);
}

TEST(Faults, ChangeNumbersOnceOrAlways) {
  Faults faults({"0:3:reduce:nan", "0:4:reduce:inf!", "0:5:reduce:spike", "1:3:reduce:inf"}, 0, 2, 0);
  double loss = 2;
  float gradient = 1;
  const NumbersOfRank numbers{&loss, &gradient};
  faults.change(2, numbers);
  EXPECT_EQ(loss, 2);
  faults.change(3, numbers);
  EXPECT_TRUE(std::isnan(loss) && std::isnan(gradient));
  loss = 2, gradient = 1;
  faults.change(3, numbers);
  EXPECT_TRUE(loss == 2 && gradient == 1);
  for (int again = 0; again < 3; ++again) {
    gradient = 1;
    faults.change(4, numbers);
    EXPECT_TRUE(std::isinf(gradient) && loss == 2);
  }
  faults.change(5, {&loss, nullptr});
  EXPECT_EQ(loss, 100);
  const auto story = [](const char* words) { return story_of([&] { read_fault(words); }); };
  EXPECT_TRUE(says(story("1:2:update:nan"), "'nan' changes numbers in phase reduce, not in update"));
  EXPECT_TRUE(says(story("1:2:reduce:kill!"), "'kill' ends the process and cannot repeat"));
}

TEST(Faults, ForARankThatDoesNotExistAreRefused) {
  EXPECT_THROW(Faults({"0:1:report:kill", "2:1:report:kill"}, 0, 2, 0), ConfigError);
  EXPECT_NO_THROW(Faults({"0:1:report:kill", "1:1:report:kill"}, 0, 2, 0));
}

TEST(Faults, DrawnOnesComeToOneStepInSoManyAndToOneRank) {
  const DrawnFaults drawn{.rate = 5, .seed = 7, .ranks = 3};
  int steps = 0;
  for (int step = 1; step <= 1000; ++step) steps += drawn.rank_of(step) >= 0;
  EXPECT_NEAR(steps, 200, 60);
  EXPECT_EQ(DrawnFaults{}.rank_of(1), -1);
  int step = 1;
  while (drawn.rank_of(step) < 0) ++step;
  for (std::int64_t rank = 0; rank < 3; ++rank) {
    Faults faults({}, rank, 3, 0);
    faults.draw(drawn);
    double loss = 2;
    faults.change(step, {&loss, nullptr});
    EXPECT_EQ(std::isnan(loss), rank == drawn.rank_of(step));
    loss = 2;
    faults.change(step, {&loss, nullptr});
    EXPECT_EQ(loss, 2) << "transient";
  }
}

TEST(Faults, ASlowRankTakesThreeTimesAsLongAgainFromItsStepOn) {
  Faults faults({"0:2:reduce:slow"}, 0, 1, 0);
  for (int step = 1; step <= 3; ++step) {
    faults.reach(step, Phase::forward);
    const Stopwatch all;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const double computed = all.seconds();
    faults.reach(step, Phase::reduce);
    if (step >= 2) {
      EXPECT_GE(all.seconds(), 3.9 * computed) << step;
    }
  }
  EXPECT_TRUE(says(story_of([] { read_fault("1:2:forward:slow"); }), "'slow' waits in phase reduce, not in forward"));
}

using FaultsDeathTest = testing::Test;
TEST(FaultsDeathTest, EndTheProcessAsTheirModeSays) {
  const auto reach = [](const char* mode) { Faults({text("0:1:forward:", mode)}, 0, 1, 0).reach(1, Phase::forward); };
  EXPECT_EXIT(reach("kill"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(reach("segv"), testing::KilledBySignal(SIGSEGV), "");
  EXPECT_EXIT(reach("abort"), testing::KilledBySignal(SIGABRT), "");
  EXPECT_EXIT(reach("exit"), testing::ExitedWithCode(1), "");
  EXPECT_EXIT(reach("quit"), testing::ExitedWithCode(0), "");
}

TEST(Faults, ABitFlipsOnceAlsoIfTheStepIsComputedAgain) {
  Faults faults({"0:2:gather:flip"}, 0, 1, 0);
  int flips = 0;
  faults.flip_by([&] { return ++flips, "bit 3"; });
  faults.reach(1, Phase::gather);
  EXPECT_EQ(flips, 0);
  faults.reach(2, Phase::gather);
  faults.reach(2, Phase::gather);
  EXPECT_EQ(flips, 1);
}

}  // namespace
}  // namespace tessera::resilience
