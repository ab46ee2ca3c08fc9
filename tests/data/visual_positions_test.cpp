#include "framework/data/visual_positions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "framework/base/error.h"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr std::int32_t start = 10, stop = 11, image = 12, video = 13;
constexpr VisualTokens visual{image, video, 2};

struct Written {
  Ids positions;
  std::int64_t delta = 0;
  bool operator==(const Written&) const = default;
};

Written written(const Ids& ids, const std::vector<PatchGrid>& grids, const Ids& mask = {}, bool text = false) {
  Written made{Ids(3 * ids.size(), -7)};
  made.delta = write_visual_positions({ids, mask, grids, text}, visual, made.positions);
  return made;
}

// The same by the words of the rule: each item is three loops.
Written plainly(const Ids& ids, const std::vector<PatchGrid>& grids) {
  std::vector<std::array<std::int32_t, 3>> all;
  std::int32_t next = 0;
  std::size_t item = 0;
  for (std::size_t at = 0; at < ids.size();) {
    if (ids[at] != image && ids[at] != video) {
      all.push_back({next, next, next});
      ++next, ++at;
      continue;
    }
    const auto& grid = grids[item++];
    for (std::int32_t t = 0; t < grid.t; ++t)
      for (std::int32_t h = 0; h < grid.h / 2; ++h)
        for (std::int32_t w = 0; w < grid.w / 2; ++w, ++at) all.push_back({next + t, next + h, next + w});
    next += std::max({grid.t, grid.h / 2, grid.w / 2});
  }
  Written made{{}, next - static_cast<std::int64_t>(ids.size())};
  for (std::size_t axis = 0; axis < 3; ++axis)
    for (const auto& one : all) made.positions.push_back(one[axis]);
  return made;
}

TEST(VisualPositions, OfAnImageAreItsRowsAndColumns) {
  const auto made = written({1, 2, start, image, image, image, image, stop, 3, 4}, {{1, 4, 4}});
  EXPECT_EQ(made.positions,
            (Ids{0, 1, 2, 3, 3, 3, 3, 5, 6, 7, 0, 1, 2, 3, 3, 4, 4, 5, 6, 7, 0, 1, 2, 3, 4, 3, 4, 5, 6, 7}));
  EXPECT_EQ(made.delta, -2);
}

TEST(VisualPositions, OfAVideoCountItsTimeSteps) {
  Ids ids = {1, 2, 3, 4, start};
  ids.insert(ids.end(), 12, video);
  ids.insert(ids.end(), {stop, 5, 6, 7, 8});
  const auto made = written(ids, {{2, 4, 6}});
  EXPECT_EQ(Ids(made.positions.begin(), made.positions.begin() + 22),
            (Ids{0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 8, 9, 10, 11, 12}));
  EXPECT_EQ(made.delta, -9);
}

// 2 positions a time step: of three steps, the last is at 4, which is beyond rows and columns.
TEST(VisualPositions, OfAVideoWithTimesHaveTheirDistance) {
  const auto made = written({1, video, video, video, 2}, {{3, 2, 2, 2.5}});
  EXPECT_EQ(Ids(made.positions.begin(), made.positions.begin() + 5), (Ids{0, 1, 3, 6, 7}));
  EXPECT_EQ(made.delta, 3);
}

TEST(VisualPositions, PassOverPaddingOnEitherSide) {
  EXPECT_EQ(written({1, 2, 3, 0}, {}, {1, 1, 1, 0}, true), (Written{{0, 1, 2, 1, 0, 1, 2, 1, 0, 1, 2, 1}, -1}));
  EXPECT_EQ(written({0, 1, 2}, {}, {0, 1, 1}, true), (Written{{1, 0, 1, 1, 0, 1, 1, 0, 1}, -1}));
  EXPECT_EQ(written({1, 0, 0}, {}, {1, 0, 0}).delta, -2);
  EXPECT_EQ(written({1, 0, 0}, {}, {1, 0, 0}, true).delta, -1);
}

TEST(VisualPositions, OfRandomRowsFollowTheRule) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t end) { return static_cast<std::int32_t>(random() % end); };
  for (int round = 0; round < 200; ++round) {
    Ids ids(static_cast<std::size_t>(below(6)), 1);
    std::vector<PatchGrid> grids;
    for (auto items = below(4); items > 0; --items) {
      grids.push_back({1 + below(3), 2 + 2 * below(4), 2 + 2 * below(4)});
      ids.insert(ids.end(), static_cast<std::size_t>(below(3)), 2);  // none: two items may be neighbours
      ids.insert(ids.end(), static_cast<std::size_t>(grids.back().tokens(2)), below(2) == 0 ? image : video);
    }
    ids.push_back(3);
    const auto made = written(ids, grids);
    EXPECT_EQ(made, plainly(ids, grids));
    auto padded = ids;
    padded.insert(padded.end(), 5, 0);
    Ids mask(padded.size(), 1);
    std::fill(mask.end() - 5, mask.end(), 0);
    EXPECT_EQ(written(padded, grids, mask).delta, made.delta - 5);
  }
}

TEST(VisualPositions, RefuseARowThatDoesNotAgreeWithItsGrids) {
  const std::vector<PatchGrid> four = {{1, 4, 4}};
  EXPECT_THROW(written({1, image, image, image, 2}, four), ShapeError);
  EXPECT_THROW(written({1, image, image, image}, four), ShapeError);
  EXPECT_THROW(written({1, image, image, image, image, image}, four), ShapeError);
  EXPECT_THROW(written({1, 2}, four), ShapeError);
  EXPECT_THROW(written({1, image}, {}), ShapeError);
  EXPECT_THROW(written({1, image}, {{1, 0, 4}}), ShapeError);
}

}  // namespace
}  // namespace tessera::data
