#include "framework/training/guards/step_time_out.h"

#include <gtest/gtest.h>

namespace tessera::training {
namespace {

TEST(StepTimeOut, IsLearntFromTheStepsAfterTheFirst) {
  StepTimeOut learnt({}, 600);
  learnt.add(100, 8);  // reading data, first use of memory
  learnt.add(50, 8);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(learnt.seconds(8), 600) << i;
    learnt.add(i == 4 || i == 6 ? 5 : 4, 8);
  }
  EXPECT_DOUBLE_EQ(learnt.seconds(8), 50);
  EXPECT_DOUBLE_EQ(learnt.seconds(16), 100) << "a batch twice as large";
  EXPECT_EQ(learnt.seconds(800), 600) << "no more than operations may take anyway";
  EXPECT_EQ(learnt.seconds(1), 30) << "short steps vary";
}

TEST(StepTimeOut, IsNotLearntFromOneStepInWhichTheMachineWasPaused) {
  for (const int paused : {2, 11, 20}) {
    StepTimeOut learnt({}, 6000);
    for (int i = 0; i < 30; ++i) learnt.add(i == paused ? 204 : 4, 8);
    EXPECT_DOUBLE_EQ(learnt.seconds(8), 40) << paused;
  }
}

TEST(StepTimeOut, MayBeGiven) {
  EXPECT_EQ(StepTimeOut(2.5, 600).seconds(8), 2.5);
  EXPECT_EQ(StepTimeOut(2000, 600).seconds(8), 600);
}

TEST(StepTimeOut, OfAnEvaluationCountsItsIterations) {
  EXPECT_EQ(StepTimeOut(2.5, 600).evaluation_seconds(8, 4), 10);
  EXPECT_EQ(StepTimeOut(2.5, 600).evaluation_seconds(8, 400), 600);
  StepTimeOut learnt({}, 600);
  EXPECT_EQ(learnt.evaluation_seconds(8, 2), 600) << "no step is known";
  for (int i = 0; i < 12; ++i) learnt.add(4, 8);
  EXPECT_DOUBLE_EQ(learnt.evaluation_seconds(8, 2), 80);
}

}  // namespace
}  // namespace tessera::training
