#include "framework/schedule/optimizer_schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "framework/schedule/batch_plan.h"

namespace tessera {
namespace {

OptimizerSchedule schedule(double highest, std::int64_t samples, const std::string& style = "linear") {
  LearningRateOptions rate;
  rate.learning_rate = highest;
  WeightDecayOptions decay;
  decay.weight_decay = 0.1;
  const RunLength run{samples, 10};
  const auto maker = decay_maker(decays(), run);
  return {LearningRate(rate, maker(style), run), WeightDecay(decay, run), style, maker};
}

std::string refusal(OptimizerSchedule& into, const ScheduleState& saved) {
  try {
    into.restore(saved, {});
    return "";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

TEST(OptimizerSchedule, StandsStillUnlessAStepCounts) {
  auto s = schedule(1, 100);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 1);
  s.advance(10);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 0.9);
  s.advance(0);
  EXPECT_DOUBLE_EQ(s.learning_rate(), 0.9);
  EXPECT_DOUBLE_EQ(s.learning_rate(10, 5), 9.5);  // other ends, same way
}

TEST(OptimizerSchedule, GoesOnWhereItWasSaved) {
  auto first = schedule(1, 100);
  first.advance(30);
  auto second = schedule(1, 100);
  second.restore(first.state(), {});
  EXPECT_EQ(second.learning_rate(), first.learning_rate());
  EXPECT_EQ(second.samples(), 30);
}

TEST(OptimizerSchedule, ADifferenceIsRefusedWithBothValuesUnlessOneSideCounts) {
  auto first = schedule(1, 100, "cosine");
  first.advance(50);
  auto second = schedule(2, 100);
  const auto why = refusal(second, first.state());
  EXPECT_NE(why.find("learning rate is 2 in the recipe and 1 in the checkpoint"), std::string::npos) << why;
  EXPECT_NE(why.find("override_opt_param_scheduler"), std::string::npos) << why;
  auto ours = schedule(2, 100);
  ours.restore(first.state(), {.override_opt_param_scheduler = true});
  ours.advance(25);
  EXPECT_DOUBLE_EQ(ours.learning_rate(), 0.5);  // a line from 2
  auto theirs = schedule(2, 100);
  theirs.restore(first.state(), {.use_checkpoint_opt_param_scheduler = true});
  theirs.advance(25);
  EXPECT_NEAR(theirs.learning_rate(), 0.5 * (1 + std::cos(0.75 * 3.14159265358979)), 1e-12);
}

TEST(OptimizerSchedule, AStyleThatIsNotOnTheShelfIsNamed) {
  auto first = schedule(1, 100).state();
  first.lr_decay_style = "sawtooth";
  auto second = schedule(1, 100);
  try {
    second.restore(first, {.use_checkpoint_opt_param_scheduler = true});
    FAIL() << "taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("no lr_decay_style 'sawtooth'"), std::string::npos) << error.what();
  }
}

TEST(BatchPlan, IsTheSameThroughoutUnlessItGrows) {
  const BatchPlan plan({}, {2, 8, 1});
  EXPECT_EQ(plan.at(0).micro_batches, 4);
  EXPECT_EQ(plan.at(1000).samples, 8);
  EXPECT_EQ(plan.steps_of(20), 2);
  EXPECT_FALSE(plan.grows());
}

TEST(BatchPlan, GrowsInEqualStridesOfSamples) {
  const BatchPlan plan({{{4, 4, 60}}, false}, {2, 16, 1});
  for (const auto& [consumed, samples] : {std::pair{0, 4}, {19, 4}, {20, 8}, {40, 12}, {59, 12}, {60, 16}, {900, 16}})
    EXPECT_EQ(plan.at(consumed).samples, samples) << consumed;
  EXPECT_EQ(plan.full().micro_batches, 8);
  EXPECT_EQ(plan.steps_of(320), 25);  // recorded from Megatron-LM
}

TEST(BatchPlan, WhatDoesNotDivideIsRefusedOrCutOff) {
  const BatchRampOptions uneven{{{4, 2, 60}}, false};
  EXPECT_THROW(BatchPlan(uneven, {4, 16, 1}).at(15), ConfigError);
  const auto cut = BatchPlan({{{4, 2, 60}}, true}, {4, 16, 1}).at(15);
  EXPECT_EQ(cut.nominal, 6);
  EXPECT_EQ(cut.samples, 4);
  EXPECT_THROW(BatchPlan({}, {4, 10, 1}), ConfigError);
  EXPECT_EQ(BatchPlan({std::nullopt, true}, {4, 10, 1}).at(0).samples, 8);
}

}  // namespace
}  // namespace tessera
