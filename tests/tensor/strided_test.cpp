#include "framework/tensor/strided.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "framework/base/error.h"

namespace tessera {
namespace {

// Element (i, j, k, c) of a [2, 3, 2, 4] block in rows of 20 floats, and dense with the first two dims exchanged.
TEST(Strided, ABlockIsCopiedBetweenTwoLayouts) {
  std::vector<float> from(2 * 3 * 20), to(2 * 3 * 2 * 4, -1);
  std::iota(from.begin(), from.end(), 0.0F);
  copy_strided({2, 3, 2, 4}, from, {5, {60, 20, 8}}, to, {0, {8, 16, 4}});
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t j = 0; j < 3; ++j)
      for (std::size_t k = 0; k < 2; ++k)
        for (std::size_t c = 0; c < 4; ++c)
          EXPECT_EQ(to[((j * 2 + i) * 2 + k) * 4 + c], from[5 + i * 60 + j * 20 + k * 8 + c]);
}

TEST(Strided, RowsOutsideAnArrayAreRefused) {
  std::vector<float> six(6), to(6);
  EXPECT_NO_THROW(copy_strided({1, 2, 1, 3}, six, {0, {0, 3, 0}}, to, {0, {0, 3, 0}}));
  EXPECT_THROW(copy_strided({1, 2, 1, 3}, six, {1, {0, 3, 0}}, to, {0, {0, 3, 0}}), ShapeError);
  EXPECT_THROW(copy_strided({1, 2, 1, 3}, six, {0, {0, 3, 0}}, to, {0, {0, 4, 0}}), ShapeError);
  EXPECT_THROW(copy_strided({1, 2, 1, 3}, six, {0, {0, -3, 0}}, to, {0, {0, 3, 0}}), ShapeError);
  EXPECT_NO_THROW(copy_strided({1, 0, 1, 3}, six, {100, {0, 3, 0}}, to, {0, {0, 3, 0}}));
}

}  // namespace
}  // namespace tessera
