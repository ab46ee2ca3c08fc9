#include "framework/images/processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <random>
#include <string>

namespace tessera::images {
namespace {

Picture noise(std::mt19937& random, Size size) {
  Picture picture = {Mode::RGB, size, {}};
  picture.samples.resize(static_cast<std::size_t>(size.pixels() * 3));
  for (auto& sample : picture.samples) sample = static_cast<std::uint8_t>(random());
  return picture;
}

std::mt19937 printed_seed() {
  const auto seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  return std::mt19937(seed);
}

ProcessorOptions random_options(std::mt19937& random) {
  ProcessorOptions options;
  options.patch_size = 1 + static_cast<int>(random() % 5);
  options.temporal_patch_size = 1 + static_cast<int>(random() % 3);
  options.merge_size = 1 + static_cast<int>(random() % 3);
  options.min_pixels = 1;
  options.backend = random() % 2 == 0 ? Backend::pil : Backend::torchvision;
  return options;
}

TEST(Processor, RowsRunOverMergedPatchesAndColumnsOverChannelFrameAndSquare) {
  auto random = printed_seed();
  for (int i = 0; i < 30; ++i) {
    const auto options = random_options(random);
    const int P = options.patch_size, F = options.temporal_patch_size, M = options.merge_size;
    const Size size = {options.factor() * (1 + static_cast<std::int64_t>(random() % 4)),
                       options.factor() * (1 + static_cast<std::int64_t>(random() % 4))};
    std::vector<Picture> frames;
    for (std::size_t k = 0; k <= random() % 6; ++k) frames.push_back(noise(random, size));
    const Processor processor(options);
    const auto levels = processor.levels(frames);
    const auto patches = processor.process(frames);
    const auto grid = patches.grid;
    ASSERT_EQ(grid, grid_of(size, static_cast<std::int64_t>(frames.size()), options));
    ASSERT_EQ(grid.t, (static_cast<int>(frames.size()) + F - 1) / F);
    ASSERT_EQ(grid.tokens(M) * M * M, grid.patches());
    ASSERT_EQ(levels.size(), patches.values.size());
    std::size_t at = 0;
    for (int t = 0; t < grid.t; ++t)
      for (int bh = 0; bh < grid.h / M; ++bh)
        for (int bw = 0; bw < grid.w / M; ++bw)
          for (int ih = 0; ih < M; ++ih)
            for (int iw = 0; iw < M; ++iw)
              for (int c = 0; c < 3; ++c)
                for (int f = 0; f < F; ++f)
                  for (int y = 0; y < P; ++y)
                    for (int x = 0; x < P; ++x, ++at) {
                      const auto frame = std::min(
                          static_cast<std::size_t>(t) * static_cast<std::size_t>(F) + static_cast<std::size_t>(f),
                          frames.size() - 1);
                      const auto row = frames[frame].row((bh * M + ih) * P + y);
                      const int column = ((bw * M + iw) * P + x) * 3 + c;
                      const auto expected = row[static_cast<std::size_t>(column)];
                      ASSERT_EQ(levels[at], expected) << at;
                      const auto k = static_cast<std::size_t>(c);
                      ASSERT_NEAR(patches.values[at],
                                  (expected / 255.0 - options.mean[k]) / options.standard_deviation[k], 1e-6);
                    }
    ASSERT_EQ(at, levels.size());
  }
}

TEST(Processor, GridIsForeseenFromTheSizeAlone) {
  auto random = printed_seed();
  for (int i = 0; i < 20; ++i) {
    ProcessorOptions options;
    options.max_pixels = 20000 + static_cast<std::int64_t>(random() % 100000);
    const auto picture =
        noise(random, {20 + static_cast<std::int64_t>(random() % 300), 20 + static_cast<std::int64_t>(random() % 300)});
    EXPECT_EQ(Processor(options).process(std::span(&picture, 1)).grid, grid_of(picture.size, 1, options));
  }
}

std::string mistakes_of(const std::string& json) {
  try {
    read_processor_options(json);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

TEST(ProcessorOptions, BothSpellingsOfTheLimitsAreRead) {
  const auto older = read_processor_options(R"({"min_pixels": 3136, "max_pixels": 12845056, "patch_size": 16,
      "temporal_patch_size": 1, "merge_size": 3, "image_mean": [0.5, 0.4, 0.3], "image_std": 0.25,
      "image_processor_type": "Qwen2VLImageProcessor"})");
  EXPECT_EQ(older.min_pixels, 3136);
  EXPECT_EQ(older.max_pixels, 12845056);
  EXPECT_EQ(older.patch_size, 16);
  EXPECT_EQ(older.temporal_patch_size, 1);
  EXPECT_EQ(older.merge_size, 3);
  EXPECT_EQ(older.mean, (std::array<double, 3>{0.5, 0.4, 0.3}));
  EXPECT_EQ(older.standard_deviation, (std::array<double, 3>{0.25, 0.25, 0.25}));
  EXPECT_EQ(older.backend, Backend::torchvision);
  const auto newer = read_processor_options(
      R"({"size": {"shortest_edge": 3136, "longest_edge": 50176}, "image_processor_type": "Qwen2VLImageProcessorPil"})");
  EXPECT_EQ(newer.min_pixels, 3136);
  EXPECT_EQ(newer.max_pixels, 50176);
  EXPECT_EQ(newer.backend, Backend::pil);
  const auto both = read_processor_options(
      R"({"size": {"shortest_edge": 1, "longest_edge": 2}, "min_pixels": 3136, "max_pixels": 50176})");
  EXPECT_EQ(both.min_pixels, 3136);
  EXPECT_EQ(both.max_pixels, 50176);
  EXPECT_EQ(read_processor_options(R"({"image_processor": {"patch_size": 7}})").patch_size, 7);
  const auto in_size = read_processor_options(R"({"size": {"min_pixels": 7, "max_pixels": 700}})");
  EXPECT_EQ(in_size.min_pixels, 7);
  EXPECT_EQ(in_size.max_pixels, 700);
  const auto none = read_processor_options("{}");
  EXPECT_EQ(none.min_pixels, 3136);
  EXPECT_EQ(none.max_pixels, 1003520);
}

TEST(ProcessorOptions, AllMistakesAreToldAtOnce) {
  const auto words = mistakes_of(R"({"patch_size": "14", "resample": 2, "size": {"height": 224, "width": 224},
      "image_mean": [1, 2], "image_processor_type": "CLIPImageProcessor"})");
  for (const auto* word : {"patch_size is \"14\"", "resample is 2", "size has a height", "image_mean is [1,2]",
                           "image_processor_type is CLIPImageProcessor"})
    EXPECT_NE(words.find(word), std::string::npos) << word << " in " << words;
  const auto ranges = mistakes_of(R"({"patch_size": 0, "merge_size": 100, "min_pixels": 10, "max_pixels": 5,
      "image_std": [1, 0, 1], "rescale_factor": 0})");
  for (const auto* word :
       {"patch_size is 0", "merge_size is 100", "min_pixels is 10", "image_std is 0", "rescale_factor is 0"})
    EXPECT_NE(ranges.find(word), std::string::npos) << word << " in " << ranges;
  EXPECT_NE(mistakes_of("[1]").find("an object was expected"), std::string::npos);
  EXPECT_NE(mistakes_of("{").find("not JSON"), std::string::npos);
}

TEST(ProcessorOptions, ScalingMayBeLeftOut) {
  const Picture picture = {Mode::RGB, {28, 28}, std::vector<std::uint8_t>(28 * 28 * 3, 51)};
  for (const auto backend : {Backend::pil, Backend::torchvision}) {
    ProcessorOptions options;
    options.min_pixels = 1;
    options.backend = backend;
    options.mean = {0.5, 0.5, 0.5};
    options.standard_deviation = {0.25, 0.25, 0.25};
    const auto first = [&](bool rescale, bool normalize) {
      options.rescale = rescale;
      options.normalize = normalize;
      return Processor(options).process(std::span(&picture, 1)).values[0];
    };
    EXPECT_FLOAT_EQ(first(false, false), 51);
    EXPECT_FLOAT_EQ(first(true, false), 0.2F);
    EXPECT_FLOAT_EQ(first(false, true), 202);
    EXPECT_FLOAT_EQ(first(true, true), -1.2F);
  }
}

TEST(Processor, FramesOfOneVideoHaveOneSize) {
  std::mt19937 random(7);
  const std::vector<Picture> frames = {noise(random, {28, 28}), noise(random, {56, 28})};
  const Processor processor({});
  try {
    processor.process(frames);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("28x28 and 56x28"), std::string::npos) << error.what();
  }
  EXPECT_THROW(processor.process(std::span<const Picture>()), ConfigError);
}

TEST(Processor, PictureThatIsNotResizedHasWholePatches) {
  std::mt19937 random(7);
  ProcessorOptions options;
  options.resize = false;
  const auto good = noise(random, {56, 28}), bad = noise(random, {56, 30});
  EXPECT_EQ(Processor(options).process(std::span(&good, 1)).grid, (Grid{1, 2, 4}));
  EXPECT_THROW(Processor(options).process(std::span(&bad, 1)), ConfigError);
}

}  // namespace
}  // namespace tessera::images
