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
  EXPECT_EQ(none.decide(failed(-1)), give_up);
  EXPECT_EQ(two.decide(failed(-1)), restart);
  EXPECT_EQ(two.decide(failed(-1)), restart);
  EXPECT_EQ(two.decide(failed(-1)), give_up);
}

TEST(Restarts, OneThatKeepsItsStateGetsThreeWithoutACompleteStepBetweenThem) {
  Restarts restarts({});
  EXPECT_EQ(restarts.decide(failed(7, "a")), restart);
  EXPECT_EQ(restarts.decide(failed(7, "b")), restart);
  EXPECT_EQ(restarts.decide(failed(7, "c")), restart);
  EXPECT_EQ(restarts.decide(failed(7, "d")), give_up);
  Restarts again({});
  for (int step = 7; step < 100; ++step) EXPECT_EQ(again.decide(failed(step)), restart) << step;
  EXPECT_EQ(again.done(), 1);
}

TEST(Restarts, AStartThatEndsBeforeAnybodyTellsLeavesTheStateOfTheOneBefore) {
  Restarts restarts({});
  const auto next = [&](int held, const std::string& cause) {
    auto outcome = failed(held, cause);
    restarts.carry_held(outcome);
    EXPECT_EQ(restarts.decide(outcome), restart) << cause;
    return outcome.held;
  };
  EXPECT_EQ(next(7, "a"), 7);
  EXPECT_EQ(next(-1, "b"), 7);
  EXPECT_EQ(next(-1, "c"), 7);
  EXPECT_EQ(next(8, "d"), 8);
  EXPECT_EQ(next(3, "e"), 3) << "what was told counts: the state was lost, and the run continued from a checkpoint";
}

TEST(Restarts, NoneIfNoneAreAskedForOrNoneIsOfUse) {
  Restarts none(0), refused({}), lost({});
  EXPECT_EQ(none.decide(failed(7)), give_up);
  auto outcome = failed(7);
  outcome.refused = true;
  EXPECT_EQ(refused.decide(outcome), give_up);
  outcome = failed(7);
  outcome.code = worker::nothing_saved;
  EXPECT_EQ(Restarts({}).decide(outcome), give_up);
  outcome = failed(7);
  outcome.host_lost = true;
  outcome.lost_hosts = {1};
  EXPECT_EQ(lost.decide(outcome), give_up);
  outcome.host_lost = false;  // another one has its workers
  EXPECT_EQ(Restarts({}).decide(outcome), restart);
}

TEST(Restarts, TheSameFailureAtTheSameStepAgainIsAPoisonStep) {
  Restarts restarts(9);
  EXPECT_EQ(restarts.decide(failed(7)), restart);
  EXPECT_EQ(restarts.decide(failed(8)), restart) << "a later step";
  EXPECT_EQ(restarts.decide(failed(8, "rank 2 was ended by signal 9")), restart) << "another rank";
  EXPECT_EQ(restarts.decide(failed(8, "rank 2 was ended by signal 9")), poison);
}

}  // namespace
}  // namespace tessera::tsrun
