#include "launch/tsrun/restarts.h"

#include <gtest/gtest.h>

#include "framework/worker/launch_link.h"

namespace tessera::tsrun {
namespace {

using enum Restarts::Decision;

Outcome failed(int held, const std::string& cause = "rank 1 was ended by signal 9") {
  Outcome outcome;
  outcome.kind = Outcome::Kind::failed;
  outcome.held = held;
  outcome.cause = cause;
  return outcome;
}

TEST(Restarts, AProgramWithoutStateInMemoryGetsAsManyAsWereAskedFor) {
  Restarts none({}), two(2);
  EXPECT_EQ(none.decide(failed(-1), 0), give_up);
  EXPECT_EQ(two.decide(failed(-1), 0), restart);
  EXPECT_EQ(two.decide(failed(-1), 0), restart);
  EXPECT_EQ(two.decide(failed(-1), 0), give_up);
}

TEST(Restarts, OneThatKeepsItsStateGetsThreeWithoutACompleteStepBetweenThem) {
  Restarts restarts({});
  EXPECT_EQ(restarts.decide(failed(7, "a"), 0), restart);
  EXPECT_EQ(restarts.decide(failed(7, "b"), 0), restart);
  EXPECT_EQ(restarts.decide(failed(7, "c"), 0), restart);
  EXPECT_EQ(restarts.decide(failed(7, "d"), 0), give_up);
  Restarts again({});
  for (int step = 7; step < 100; ++step) EXPECT_EQ(again.decide(failed(step), 0), restart) << step;
  EXPECT_EQ(again.done(), 1);
}

TEST(Restarts, AStartThatEndsBeforeAnybodyTellsLeavesTheStateOfTheOneBefore) {
  Restarts restarts({});
  const auto next = [&](int held, const std::string& cause) {
    auto outcome = failed(held, cause);
    restarts.carry_held(outcome);
    EXPECT_EQ(restarts.decide(outcome, 0), restart) << cause;
    return outcome.held;
  };
  EXPECT_EQ(next(7, "a"), 7);
  EXPECT_EQ(next(-1, "b"), 7);
  EXPECT_EQ(next(-1, "c"), 7);
  EXPECT_EQ(next(8, "d"), 8);
  EXPECT_EQ(next(3, "e"), 3) << "what was told counts: the state was lost, and the run continued from a checkpoint";
}

TEST(Restarts, WithAWindowThoseOfItsSecondsCountThoughStepsWereCompleted) {
  Restarts restarts(2, -1, 60);
  EXPECT_EQ(restarts.decide(failed(7), 100), restart);
  EXPECT_EQ(restarts.decide(failed(8), 130), restart);
  EXPECT_EQ(restarts.done(), 2);
  EXPECT_EQ(restarts.decide(failed(9), 159), give_up) << "the third within 60 s";
  EXPECT_TRUE(restarts.too_often());
  Restarts slower(2, -1, 60);
  for (int k = 0; k < 50; ++k) {
    EXPECT_EQ(slower.decide(failed(7 + k), 100 + 31 * k), restart) << k;
    EXPECT_EQ(slower.done(), k == 0 ? 1 : 2) << k;
  }
}

TEST(Restarts, AWindowForgivesNoRestartsWithoutACompleteStep) {
  Restarts restarts(2, -1, 60);
  EXPECT_EQ(restarts.decide(failed(7, "a"), 100), restart);
  EXPECT_EQ(restarts.decide(failed(7, "b"), 1000), restart);
  EXPECT_EQ(restarts.decide(failed(7, "c"), 2000), give_up);
  EXPECT_FALSE(restarts.too_often());
  Restarts stateless(2, -1, 60);
  for (const auto expected : {restart, restart, give_up}) EXPECT_EQ(stateless.decide(failed(-1), 0), expected);
}

TEST(Restarts, WithoutAWindowAProgramThatCompletesStepsIsAlwaysStartedAgain) {
  Restarts restarts(2);
  for (int step = 7; step < 100; ++step) EXPECT_EQ(restarts.decide(failed(step), 0), restart) << step;
}

TEST(Restarts, NoneIfNoneAreAskedForOrNoneIsOfUse) {
  Restarts none(0), refused({}), lost({});
  EXPECT_EQ(none.decide(failed(7), 0), give_up);
  auto outcome = failed(7);
  outcome.refused = true;
  EXPECT_EQ(refused.decide(outcome, 0), give_up);
  outcome = failed(7);
  outcome.code = worker::nothing_saved;
  EXPECT_EQ(Restarts({}).decide(outcome, 0), give_up);
  outcome = failed(7);
  outcome.host_lost = true;
  outcome.lost_hosts = {1};
  EXPECT_EQ(lost.decide(outcome, 0), give_up);
  outcome.host_lost = false;  // another one has its workers
  EXPECT_EQ(Restarts({}).decide(outcome, 0), restart);
}

TEST(Restarts, TheSameFailureAtTheSameStepAgainIsAPoisonStep) {
  Restarts restarts(9);
  EXPECT_EQ(restarts.decide(failed(7), 0), restart);
  EXPECT_EQ(restarts.decide(failed(8), 0), restart) << "a later step";
  EXPECT_EQ(restarts.decide(failed(8, "rank 2 was ended by signal 9"), 0), restart) << "another rank";
  EXPECT_EQ(restarts.decide(failed(8, "rank 2 was ended by signal 9"), 0), poison);
}

}  // namespace
}  // namespace tessera::tsrun
