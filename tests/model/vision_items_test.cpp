// Which patches of a batch the vision tower computes, and which see each other.
#include "framework/model/vision_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <vector>

#include "framework/base/error.h"

namespace tessera::model {
namespace {

/// The arrays of a batch of random images beside what they mean, patch for patch.
TEST(VisionItems, SeeThePatchesOfTheirImageTimeStepAndWindow) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  kernels::Threads threads(1);
  Arena arena;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(text("seed ", seed, ", round ", round));
    VisionOptions o;
    o.in_channels = o.temporal_patch_size = 1;
    o.patch_size = 2;
    o.spatial_merge_size = static_cast<std::int64_t>(1 + random() % 3);
    const auto side = static_cast<std::int64_t>(random() % 4);  // features of a window; 0: none
    if (side > 0) o.window_size = side * o.patch_size * o.spatial_merge_size;
    struct Patch {
      std::int64_t item, step, row, column;
      /// Of the window in the image, or of the whole image.
      std::array<std::int64_t, 4> part(std::int64_t extent) const {
        return {item, step, extent > 0 ? row / extent : 0, extent > 0 ? column / extent : 0};
      }
    };
    std::vector<Patch> reading;  // in reading order
    std::vector<std::int32_t> grids;
    const auto m = o.spatial_merge_size;
    for (std::int64_t item = 0; item < 3; ++item) {
      const auto t = static_cast<std::int64_t>(1 + random() % 2), h = static_cast<std::int64_t>(1 + random() % 4),
                 w = static_cast<std::int64_t>(1 + random() % 4);
      for (const auto number : {t, m * h, m * w}) grids.push_back(static_cast<std::int32_t>(number));
      for (std::int64_t i = 0; i < t * h * w * m * m; ++i) {
        const auto feature = i / (m * m), in_feature = i % (m * m), place = feature % (h * w);
        reading.push_back({item, feature / (h * w), place / w * m + in_feature / m, place % w * m + in_feature % m});
      }
    }
    const auto patches = std::ssize(reading);
    Batch batch(BatchFields{{.name = "tokens"},
                            {pixel_field, DType::float32, FieldExtent::own, o.patch_width(), patches},
                            {grid_field, DType::int32, FieldExtent::own, 3, 3}},
                1, 1);
    batch.own_rows(0)[1] = patches;
    batch.own_rows(0)[2] = 3;
    batch.resize(1);
    std::ranges::copy(grids, batch.field<std::int32_t>(grid_field).begin());
    autograd::Tape tape(arena, threads, false);
    const auto items = VisionItems::of(tape, batch.view(), o);
    ASSERT_EQ(items.patches, patches);
    std::vector<Patch> order;  // of the tower
    std::vector<std::int32_t> numbers(items.features.begin(), items.features.end());
    for (const auto number : numbers)
      for (std::int64_t i = 0; i < m * m; ++i)
        order.push_back(reading.at(static_cast<std::size_t>(number * m * m + i)));
    std::ranges::sort(numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], static_cast<std::int32_t>(i));
    for (std::size_t i = 0; i < order.size(); ++i) {
      ASSERT_EQ(items.rows[i], order[i].row) << i;
      ASSERT_EQ(items.columns[i], order[i].column) << i;
      for (const bool windowed : {false, true}) {
        const auto& keys = windowed ? items.windowed : items.whole;
        const auto extent = windowed ? side * m : 0;
        for (std::size_t key = 0; key < order.size(); ++key) {
          const auto at = static_cast<std::int32_t>(key);
          if ((at >= keys.first[i] && at <= keys.last[i]) != (order[key].part(extent) == order[i].part(extent)))
            FAIL() << (windowed ? "window" : "image") << " of patch " << i << ", key " << key;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model
