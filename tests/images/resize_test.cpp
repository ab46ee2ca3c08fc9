#include "framework/images/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>

#include "framework/images/inference.h"
#include "framework/images/limits.h"
#include "framework/images/processor.h"
#include "framework/images/weighted_sums.h"

namespace tessera::images {
namespace {

std::mt19937 seeded() {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  return std::mt19937(seed);
}

Picture random_picture(std::mt19937& random, Size size, Mode mode = Mode::RGB) {
  Picture picture = {mode, size, {}};
  picture.samples.resize(static_cast<std::size_t>(size.pixels() * bytes_of_pixel(mode)));
  const bool hard = random() % 2 == 0;  // edges only
  for (auto& sample : picture.samples) sample = static_cast<std::uint8_t>(hard ? (random() % 2) * 255 : random());
  return picture;
}

Size random_size(std::mt19937& random, int most) {
  return {1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most)),
          1 + static_cast<std::int64_t>(random() % static_cast<unsigned>(most))};
}

/// The bicubic sum along one side at position `i`, in double, without rounding of weights.
double plain_sum(const std::vector<double>& in, std::int64_t to, std::int64_t i) {
  const auto from = static_cast<std::int64_t>(in.size());
  const double scale = static_cast<double>(from) / static_cast<double>(to), wide = std::max(scale, 1.0);
  const double centre = (static_cast<double>(i) + 0.5) * scale;
  double sum = 0, weights = 0;
  for (std::int64_t k = 0; k < from; ++k) {
    if (k < std::floor(centre - 2 * wide + 0.5) || k >= std::floor(centre + 2 * wide + 0.5)) continue;
    const double x = std::abs((static_cast<double>(k) + 0.5 - centre) / wide);
    const double w = x < 1 ? 1.5 * x * x * x - 2.5 * x * x + 1 : x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
    sum += w * in[static_cast<std::size_t>(k)];
    weights += w;
  }
  return std::clamp(sum / weights, 0.0, 255.0);
}

/// resized_bicubic with exact weights: rounds after the horizontal pass and at the end.
std::vector<double> plainly_resized(const Picture& picture, Size size) {
  const auto at = [&](std::int64_t x, std::int64_t y, std::int64_t c, std::int64_t width) {
    return static_cast<std::size_t>((y * width + x) * 3 + c);
  };
  std::vector<double> wide(static_cast<std::size_t>(size.width * picture.size.height * 3));
  std::vector<double> result(static_cast<std::size_t>(size.pixels() * 3));
  for (std::int64_t c = 0; c < 3; ++c) {
    for (std::int64_t y = 0; y < picture.size.height; ++y) {
      std::vector<double> row;
      for (std::int64_t x = 0; x < picture.size.width; ++x)
        row.push_back(picture.samples[at(x, y, c, picture.size.width)]);
      for (std::int64_t x = 0; x < size.width; ++x)
        wide[at(x, y, c, size.width)] = std::floor(plain_sum(row, size.width, x) + 0.5);
    }
    for (std::int64_t x = 0; x < size.width; ++x) {
      std::vector<double> column;
      for (std::int64_t y = 0; y < picture.size.height; ++y) column.push_back(wide[at(x, y, c, size.width)]);
      for (std::int64_t y = 0; y < size.height; ++y)
        result[at(x, y, c, size.width)] = plain_sum(column, size.height, y);
    }
  }
  return result;
}

TEST(Resize, BicubicIsTheFilterWithinItsRounding) {
  auto random = seeded();
  for (int i = 0; i < 40; ++i) {
    const auto picture = random_picture(random, random_size(random, i % 2 == 0 ? 12 : 60));
    const auto size = random_size(random, 60);
    const auto expected = plainly_resized(picture, size);
    for (const auto backend : {Backend::pil, Backend::torchvision}) {
      const auto got = resized_bicubic(picture, size, backend);
      ASSERT_EQ(got.samples.size(), expected.size());
      // Half a level of the last rounding, and the weights' sum of levels that the first pass rounds the other way.
      const double tolerance = backend == Backend::pil ? 2 : 2.5;
      for (std::size_t k = 0; k < expected.size(); ++k)
        ASSERT_NEAR(got.samples[k], expected[k], tolerance)
            << describe(picture.size) << " to " << describe(size) << " at " << k;
    }
  }
}

TEST(Resize, SideThatKeepsItsLengthIsNotFiltered) {
  auto random = seeded();
  const auto picture = random_picture(random, {23, 17});
  for (const auto backend : {Backend::pil, Backend::torchvision})
    EXPECT_EQ(resized_bicubic(picture, picture.size, backend).samples, picture.samples);
}

TEST(Resize, SumsOfEveryInstructionSetAreEqual) {
  if (!has_avx2()) GTEST_SKIP() << "no AVX2";
  auto random = seeded();
  for (int i = 0; i < 200; ++i) {
    const std::size_t width = 1 + random() % 200, count = 1 + random() % 9;
    std::vector<std::uint8_t> in(width * count), portable(width), avx2(width);
    std::vector<std::int32_t> weights(count);
    for (auto& x : in) x = static_cast<std::uint8_t>(random());
    for (auto& w : weights) w = static_cast<std::int32_t>(random() % 40000) - 10000;
    WeightedSums sums = {in.data(), width, weights.data(), static_cast<int>(count), 15, portable.data(), width};
    weighted_sums_portable(sums);
    sums.out = avx2.data();
    weighted_sums_avx2(sums);
    ASSERT_EQ(portable, avx2) << width;
  }
}

TEST(Resize, NearestTakesWholePixelsOfEveryMode) {
  auto random = seeded();
  for (const auto mode : {Mode::one, Mode::LA, Mode::I16, Mode::RGB, Mode::CMYK}) {
    const auto picture = random_picture(random, random_size(random, 50), mode);
    const auto size = random_size(random, 80);
    const auto got = resized_nearest(picture, size);
    const auto bytes = static_cast<std::size_t>(bytes_of_pixel(mode));
    const double step_x = static_cast<double>(picture.size.width) / static_cast<double>(size.width);
    const double step_y = static_cast<double>(picture.size.height) / static_cast<double>(size.height);
    double y = 0.5 * step_y;
    for (std::int64_t row = 0; row < size.height; ++row, y += step_y) {
      double x = 0.5 * step_x;
      for (std::int64_t column = 0; column < size.width; ++column, x += step_x) {
        if (x >= static_cast<double>(picture.size.width) || y >= static_cast<double>(picture.size.height)) continue;
        const auto* expected = &picture.row(static_cast<std::int64_t>(y))[static_cast<std::size_t>(x) * bytes];
        const auto* is = &got.row(row)[static_cast<std::size_t>(column) * bytes];
        ASSERT_TRUE(std::equal(expected, expected + bytes, is)) << describe(mode) << " " << row << " " << column;
      }
    }
  }
}

TEST(Limits, SizesOfThePagesExamples) {
  const PixelLimits limits = {262144, 0};
  EXPECT_EQ(limited_size({640, 480}, limits), (Size{591, 443}));
  EXPECT_EQ(limited_size({427, 640}, limits), (Size{418, 626}));
  EXPECT_EQ(limited_size({20, 300}, limits), (Size{28, 300}));
  EXPECT_EQ(limited_size({1, 1}, limits), (Size{28, 28}));
  EXPECT_EQ(limited_size({60000, 30}, limits), (Size{5040, 28}));
  EXPECT_EQ(limited_size({28, 5700}, limits), (Size{28, 5040}));
  EXPECT_EQ(limited_size({28, 5600}, limits), (Size{28, 5600}));
  EXPECT_EQ(limited_size({100, 100}, {262144, 40000}), (Size{200, 200}));
}

TEST(Limits, PictureTooThinForItsLimitIsRefused) {
  try {
    limited_size({1, 1000000}, {262144, 0});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("1x1000000"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("crop the picture"), std::string::npos) << error.what();
  }
}

TEST(Limits, SizeIsForeseenWithoutPixels) {
  auto random = seeded();
  for (int i = 0; i < 60; ++i) {
    const auto picture = random_picture(random, random_size(random, i % 3 == 0 ? 10 : 90), Mode::LA);
    const PixelLimits limits = {1 + static_cast<std::int64_t>(random() % 9000),
                                static_cast<std::int64_t>(random() % 3000)};
    Size foreseen;
    try {
      foreseen = limited_size(picture.size, limits);
    } catch (const ConfigError&) {
      EXPECT_THROW(limited(picture, limits), ConfigError);
      continue;
    }
    const auto got = limited(picture, limits);
    EXPECT_EQ(got.size, foreseen);
    EXPECT_EQ(got.mode, Mode::RGB);
  }
}

TEST(SmartResize, SizesOfThePagesExamples) {
  const auto resized = [](Size size) { return smart_resize(size, 28, 3136, 12845056); };
  EXPECT_EQ(resized({591, 443}), (Size{588, 448}));
  EXPECT_EQ(resized({418, 626}), (Size{420, 616}));
  EXPECT_EQ(resized({500, 375}), (Size{504, 364}));
  EXPECT_EQ(resized({42, 42}), (Size{56, 56}));     // 1.5 to 2
  EXPECT_EQ(resized({70, 70}), (Size{56, 56}));     // 2.5 to 2
  EXPECT_EQ(resized({98, 126}), (Size{112, 112}));  // 3.5 to 4, 4.5 to 4
  EXPECT_EQ(resized({28, 300}), (Size{28, 308}));
  EXPECT_EQ(smart_resize({2000, 20}, 28, 3136, 20000), (Size{1400, 28}));  // at least one square
  EXPECT_THROW(resized({201, 1}), ConfigError);
  EXPECT_NO_THROW(resized({200, 1}));
  EXPECT_THROW(resized({0, 10}), ConfigError);
}

TEST(SmartResize, SidesAreMultiplesWithinTheLimits) {
  auto random = seeded();
  for (int i = 0; i < 500; ++i) {
    const Size size = {28 + static_cast<std::int64_t>(random() % 2000),
                       28 + static_cast<std::int64_t>(random() % 2000)};
    const std::int64_t least = 3136 + random() % 100000, most = 4 * least + random() % 1000000;
    const auto got = smart_resize(size, 28, least, most);
    EXPECT_EQ(got.width % 28 + got.height % 28, 0);
    EXPECT_GE(got.pixels(), least) << describe(size);
    if (got.width > 28 && got.height > 28) {
      EXPECT_LE(got.pixels(), most) << describe(size);
    }
  }
}

TEST(SmartResize, QwenUtilitiesRoundThinSidesUpFirst) {
  EXPECT_EQ(smart_resize({13, 2000}, 28, 3136, 12845056), (Size{28, 700}));
  EXPECT_EQ(smart_resize({13, 2000}, 28, 3136, 12845056, SmartRounding::qwen_vl_utils), (Size{28, 1988}));
  EXPECT_THROW(smart_resize({2000, 20}, 28, 3136, 20000, SmartRounding::qwen_vl_utils), ConfigError);
}

}  // namespace
}  // namespace tessera::images
