#include "framework/training/setup/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "framework/kernels/threads.h"

namespace tessera::training {
namespace {

LossScaleOptions options(double first, double window, std::int64_t hysteresis) {
  LossScaleOptions o;
  o.loss_scale_value = first;
  o.loss_scale_window = window;
  o.hysteresis = hysteresis;
  return o;
}

TEST(LossScaler, IsNoneWithoutFp16AndSkipsNothing) {
  const LossScaler none(LossScaleOptions(), false);
  EXPECT_FALSE(none.skips());
  EXPECT_EQ(none.scale(), 1);
  EXPECT_EQ(none.inverse(), 1);
}

TEST(LossScaler, AConstantOneSkipsButNeverMoves) {
  LossScaleOptions o;
  o.loss_scale = 1024;
  for (const bool fp16 : {false, true}) {
    LossScaler scaler(o, fp16);
    EXPECT_TRUE(scaler.skips());
    EXPECT_FALSE(scaler.dynamic());
    for (int i = 0; i < 2000; ++i) scaler.update(i % 3 == 0);
    EXPECT_EQ(scaler.scale(), 1024);
  }
}

// The rule is recorded in tests/data/schedule_tables; here is what it means.
TEST(LossScaler, FallsWhenPatienceIsUsedUpAndGrowsAfterAWindowOfGoodSteps) {
  LossScaler scaler(options(64, 3, 2), true);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 64);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32);
  scaler.update(false);
  scaler.update(true);  // no growth since: not another free one
  EXPECT_EQ(scaler.scale(), 16);
  for (int i = 0; i < 3; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 32);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 32);
}

TEST(LossScaler, BeginsAgainAsBeforeTheFirstStep) {
  LossScaler scaler(options(64, 3, 1), true);
  for (int i = 0; i < 5; ++i) scaler.update(i == 1);
  EXPECT_EQ(scaler.scale(), 64);  // fell and grew
  scaler.update(false);
  scaler.begin();
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.state().growth_tracker, 0);
  EXPECT_EQ(scaler.state().hysteresis_tracker, 1);
}

TEST(LossScaler, GrowsAlsoIfMoreStepsThanTheWindowAreCounted) {
  LossScaler before(options(64, 10, 1), true);
  for (int i = 0; i < 4; ++i) before.update(false);
  LossScaler resumed(options(64, 2, 1), true);
  resumed.restore(before.state());
  resumed.update(false);
  EXPECT_EQ(resumed.scale(), 128);
  LossScaler fraction(options(64, 1.5, 1), true);
  for (int i = 0; i < 2; ++i) fraction.update(false);
  EXPECT_EQ(fraction.scale(), 128);
}

TEST(LossScaler, DoesNotFallBelowItsMinimum) {
  auto o = options(8, 1000, 1);
  o.min_loss_scale = 3;
  LossScaler scaler(o, true);
  for (int i = 0; i < 5; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 3);
  EXPECT_EQ(scaler.inverse(), static_cast<double>(1.0F / 3.0F));
}

TEST(LossScaler, TheLargestScaleHasAnInverseWhereDenormalNumbersAreZero) {
  const LossScaler scaler(options(3.4e38, 1000, 1), true);
  const kernels::Threads flushing(1);
  EXPECT_EQ(scaler.inverse(), std::nearbyint(1 / static_cast<double>(3.4e38F) * 0x1p149) * 0x1p-149);
  EXPECT_GT(scaler.inverse(), 2.9e-39);
}

// Source: Megatron-LM core_v0.12.1, grad_scaler.py: 0 < minimum <= initial, growth > 1, window and hysteresis > 0.
TEST(LossScaler, RefusesWhatMegatronRefusesAndNothingElse) {
  std::mt19937 rng(3);
  const std::vector<double> numbers = {-2, -1, 0, 0.5, 1, 1.5, 2, 8, 65536};
  const auto drawn = [&] { return numbers[rng() % numbers.size()]; };
  int refused = 0, taken = 0;
  for (int i = 0; i < 5000; ++i) {
    LossScaleOptions o;
    const double first = drawn(), least = drawn(), factor = drawn(), window = drawn();
    const auto hysteresis = static_cast<std::int64_t>(rng() % 4) - 1;
    o.loss_scale_value = first;
    o.min_loss_scale = least;
    o.loss_scale_factor = factor;
    o.loss_scale_window = window;
    o.hysteresis = hysteresis;
    const bool good = least > 0 && least <= first && factor > 1 && window > 0 && hysteresis > 0;
    const auto where = text(first, " ", least, " ", factor, " ", window, " ", hysteresis);
    if (good)
      EXPECT_NO_THROW(LossScaler(o, true)) << where;
    else
      EXPECT_THROW(LossScaler(o, true), ConfigError) << where;
    EXPECT_NO_THROW(LossScaler(o, false)) << where;  // there is none to make
    ++(good ? taken : refused);
  }
  EXPECT_GT(taken, 100);
  EXPECT_GT(refused, 1000);
}

TEST(LossScaler, NumbersThatMakeNoScaleAreRefused) {
  EXPECT_THROW(LossScaler(options(0.5, 10, 1), true), ConfigError);  // below its minimum
  auto o = options(8, 10, 1);
  o.min_loss_scale = 0;
  EXPECT_THROW(LossScaler(o, true), ConfigError);
  EXPECT_THROW(LossScaler(options(8, 0, 1), true), ConfigError);
  EXPECT_THROW(LossScaler(options(8, 10, 0), true), ConfigError);
}

}  // namespace
}  // namespace tessera::training
