#include "framework/runs/curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tessera::runs {
namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

TEST(Curve, KeepsEachPointExactlyWhileThereAreFew) {
  Curve curve(8);
  for (const std::int64_t x : {3, 5, 6}) curve.add(x, 0.1 * static_cast<double>(x));
  ASSERT_EQ(curve.columns().size(), 3U);
  EXPECT_EQ(curve.width(), 1);
  EXPECT_EQ(curve.columns()[1].first.x, 5);
  EXPECT_EQ(curve.columns()[1].first.y, 0.5);
  EXPECT_EQ(curve.newest()->x, 6);
}

TEST(Curve, LosesNoSpikeAndNoGapAmongAMillionPoints) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  // From 10 on, so that the three are different points.
  const std::int64_t high = 10 + static_cast<std::int64_t>(random() % 999'980), low = high ^ 1, gap = high / 2 + 2;
  Curve curve(1000);
  for (std::int64_t x = 0; x < 1'000'000; ++x)
    curve.add(x, x == high ? 1e6 : x == low ? -1e6 : x == gap ? nan_value : std::sin(static_cast<double>(x)));
  EXPECT_LE(curve.columns().size(), 1000U);
  EXPECT_GT(curve.columns().size(), 400U);
  EXPECT_EQ(curve.greatest()->x, high);
  EXPECT_EQ(curve.greatest()->y, 1e6);
  EXPECT_EQ(curve.least()->x, low);
  EXPECT_EQ(curve.missing(), 1U);
  const auto few = curve.thinned(64);
  EXPECT_LE(few.columns().size(), 64U);
  EXPECT_EQ(few.greatest()->x, high);
  EXPECT_EQ(few.least()->y, -1e6);
  std::uint64_t count = 0, missing = 0;
  for (const auto& column : few.columns()) {
    count += column.count;
    missing += column.missing;
    EXPECT_LE(column.first.x, column.last.x);
  }
  EXPECT_EQ(count, 1'000'000U);
  EXPECT_EQ(missing, 1U);
}

TEST(Curve, IsTheSameAsThatOfAllPointsByColumn) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 50; ++round) {
    Curve curve(2 + random() % 30);
    std::vector<Curve::Point> points;
    std::int64_t x = 0;
    for (std::size_t i = 0; i < 1 + random() % 500; ++i) {
      x = random() % 20 == 0 ? static_cast<std::int64_t>(random() % 1000) : x + static_cast<std::int64_t>(random() % 9);
      points.push_back({x, random() % 9 == 0 ? nan_value : static_cast<double>(random() % 100)});
      curve.add(points.back().x, points.back().y);
    }
    std::int64_t before = -1;
    for (const auto& column : curve.columns()) {
      const auto index = column.first.x / curve.width();
      EXPECT_LT(before, index);
      before = index;
      std::uint64_t count = 0, missing = 0;
      double least = 1e9, greatest = -1e9;
      for (const auto& point : points) {
        if (point.x / curve.width() != index) continue;
        ++count;
        missing += std::isnan(point.y) ? 1 : 0;
        least = std::fmin(least, point.y);
        greatest = std::fmax(greatest, point.y);
      }
      EXPECT_EQ(column.count, count);
      EXPECT_EQ(column.missing, missing);
      if (!column.has_finite()) continue;
      EXPECT_EQ(column.least.y, least);
      EXPECT_EQ(column.greatest.y, greatest);
    }
  }
}

TEST(Curve, TakesIterationsOfAnySize) {
  Curve curve(4);
  for (const std::int64_t x : {0L, 1L, 1L << 40, (1L << 62) + 5, 7L, -3L}) curve.add(x, static_cast<double>(x));
  EXPECT_LE(curve.columns().size(), 4U);
  EXPECT_EQ(curve.count(), 6U);
}

TEST(Curve, InterpolatesACumulativeQuantity) {
  Curve samples(2);
  EXPECT_FALSE(samples.at(5).has_value());
  for (std::int64_t x = 10; x <= 100; x += 10) samples.add(x, static_cast<double>(8 * x));
  EXPECT_EQ(samples.at(10), 80);
  EXPECT_EQ(samples.at(100), 800);
  EXPECT_NEAR(*samples.at(55), 440, 1e-9);
  EXPECT_EQ(samples.at(0), 80);
  EXPECT_EQ(samples.at(1000), 800);
}

}  // namespace
}  // namespace tessera::runs
