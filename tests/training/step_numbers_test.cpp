#include "framework/training/guards/step_numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "framework/training/guards/step_repeat.h"

namespace tessera::training {
namespace {

constexpr auto nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
constexpr NumberChecks all_checks{true, true, true};

StepOutcome numbers(double loss, double grad_norm) {
  StepOutcome outcome;
  outcome.loss = loss;
  outcome.grad_norm = grad_norm;
  return outcome;
}

checkpoint::NumberHistory history_of(int steps) {
  checkpoint::NumberHistory history;
  for (int i = 0; i < steps; ++i) add_good(history, numbers(i == 3 ? 6 : 2, i == 4 ? 0.5 : 0.25), i);
  return history;
}

TEST(StepNumbers, NumbersThatAreNotFiniteAreBadFromTheFirstStep) {
  EXPECT_EQ(judge(numbers(nan, 1), {}, all_checks), BadNumbers::not_finite);
  EXPECT_EQ(judge(numbers(1, infinity), {}, all_checks), BadNumbers::not_finite);
  EXPECT_EQ(judge(numbers(nan, 1), {}, {false, true, true}), BadNumbers::none);
}

TEST(StepNumbers, ASpikeIsTenTimesTheLargestOfTheGoodSteps) {
  const auto history = history_of(12);
  EXPECT_EQ(judge(numbers(59.9, 4.9), history, all_checks), BadNumbers::none);
  EXPECT_EQ(judge(numbers(60, 4.9), history, all_checks), BadNumbers::spiky_loss);
  EXPECT_EQ(judge(numbers(59.9, 5), history, all_checks), BadNumbers::large_gradients);
  EXPECT_EQ(judge(numbers(60, 5), history, {true, false, false}), BadNumbers::none) << "neither is looked for";
  EXPECT_EQ(judge(numbers(60, 5), history_of(9), all_checks), BadNumbers::none) << "too few steps to judge by";
  EXPECT_EQ(words_of(BadNumbers::spiky_loss, numbers(66, 1), history),
            "loss 66 is 11 times the largest of 12 steps, 6");
}

TEST(StepNumbers, AGoodStepEndsARowOfBadOnes) {
  auto history = history_of(2);
  history.bad_in_row = 2;
  add_good(history, numbers(1, 1), 9);
  EXPECT_EQ(history.bad_in_row, 0);
  EXPECT_EQ(history.last_good, 9);
  EXPECT_EQ(history.largest_grad_norm, 1);
}

std::vector<StepPrint> run_of(int replicas, int stages) {
  std::vector<StepPrint> all;
  for (int stage = 0; stage < stages; ++stage)
    for (int replica = 0; replica < replicas; ++replica)
      all.push_back({static_cast<std::uint64_t>(replica), static_cast<std::uint32_t>(stage), replica});
  return all;
}

TEST(StepRepeat, NobodyIsSuspectedIfNothingDiffers) { EXPECT_TRUE(suspects_of(run_of(2, 2), run_of(2, 2)).empty()); }

TEST(StepRepeat, WrongLossesNameTheirReplicaWhateverGradientsDiffer) {
  const auto first = run_of(3, 1);
  auto second = first;
  second[1].loss = 77;
  for (auto& one : second) ++one.gradients;  // the sum of all
  EXPECT_EQ(suspects_of(first, second), std::vector{1});
  const auto stages = run_of(2, 2);
  second = stages;
  second[3].loss = 77;
  EXPECT_EQ(suspects_of(stages, second), (std::vector{1, 3}));
}

TEST(StepRepeat, WrongGradientsNameAllThatHaveThem) {
  const auto first = run_of(2, 3);
  auto second = first;
  ++second[2].gradients, ++second[5].gradients;
  EXPECT_EQ(suspects_of(first, second), (std::vector{2, 5}));
}

}  // namespace
}  // namespace tessera::training
