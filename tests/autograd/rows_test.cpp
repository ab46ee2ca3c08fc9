// Rows as wholes: they are copied, so values and gradients are exact.
#include "framework/autograd/ops/rows.h"

#include <algorithm>
#include <numeric>

#include "framework/autograd/ops/residual.h"
#include "framework/base/error.h"
#include "tests/autograd/exact_ops.h"

namespace tessera::autograd {
namespace {

using Rows = ExactOps;

TEST_F(Rows, JoinedRowsAreTheSameElementsInAnotherShape) {
  auto x = integers(12 * 3, 1), d = integers(12 * 3, 2);
  {
    const auto in = input(x, {1, 12, 3});
    const auto y = joined_rows(in, 4);
    EXPECT_EQ(y.shape(), (Shape{1, 3, 12}));
    EXPECT_EQ(y.value().raw().data(), in.value().raw().data());
    run(y, d);
    EXPECT_EQ(grad(in), d);
    EXPECT_THROW(joined_rows(in, 5), ShapeError);
  }
  tape.clear();
}

TEST_F(Rows, ReplacedRowsAndTheirGradientsGoToTheOtherValue) {
  const unsigned seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 20; ++round) {
    const std::int64_t rows = 1 + random() % 40, given = 1 + random() % 20;
    std::vector<std::int64_t> to(static_cast<std::size_t>(rows)), from(static_cast<std::size_t>(given));
    std::iota(to.begin(), to.end(), 0);
    std::iota(from.begin(), from.end(), 0);
    std::shuffle(to.begin(), to.end(), random);
    std::shuffle(from.begin(), from.end(), random);
    std::vector<RowPlace> places;
    const auto count = static_cast<std::size_t>(random()) % (std::min(to.size(), from.size()) + 1);
    for (std::size_t i = 0; i < count; ++i) places.push_back({to[i], from[i]});
    auto x = integers(rows * 3, seed), other = integers(given * 3, seed + 1), d = integers(rows * 3, seed + 2);
    auto expected = x, dx = d;
    std::vector<float> dother(other.size(), 0);
    for (const auto& place : places)
      for (std::int64_t c = 0; c < 3; ++c) {
        const auto a = static_cast<std::size_t>(place.to * 3 + c), b = static_cast<std::size_t>(place.from * 3 + c);
        expected[a] = other[b];
        dother[b] = d[a];
        dx[a] = 0;
      }
    {
      const auto in = input(x, {1, rows, 3}), features = input(other, {1, given, 3});
      const auto y = replaced_rows(in, features, places);
      EXPECT_EQ((std::vector<float>(y.floats().begin(), y.floats().end())), expected) << "seed " << seed;
      run(y, d);
      EXPECT_EQ(grad(in), dx) << "seed " << seed;
      EXPECT_EQ(grad(features), dother) << "seed " << seed;
    }
    tape.clear();
  }
}

/// Without dropout both summands of a residual have the same gradient, in the same memory.
TEST_F(Rows, ReplacedRowsLeaveAGradientThatAnotherValueSharesAsItIs) {
  auto x = integers(4 * 2, 1), other = integers(2 * 2, 2), residual = integers(4 * 2, 3), d = integers(4 * 2, 4);
  const auto dy = d;
  {
    const auto in = input(x, {1, 4, 2}), features = input(other, {1, 2, 2}), beside = input(residual, {1, 4, 2});
    const std::vector<RowPlace> places = {{1, 0}, {2, 1}};
    run(dropout_add(replaced_rows(in, features, places), beside, {}), d);
    EXPECT_EQ(grad(beside), dy);
    EXPECT_EQ(grad(features), (std::vector<float>{dy[2], dy[3], dy[4], dy[5]}));
    EXPECT_EQ(grad(in), (std::vector<float>{dy[0], dy[1], 0, 0, 0, 0, dy[6], dy[7]}));
  }
  tape.clear();
}

TEST_F(Rows, ThatDoNotExistAreRefused) {
  auto x = integers(6, 1), other = integers(4, 2);
  {
    const auto in = input(x, {1, 3, 2}), features = input(other, {1, 2, 2}), narrow = input(other, {1, 4, 1});
    for (const RowPlace place : {RowPlace{3, 0}, RowPlace{-1, 0}, RowPlace{0, 2}, RowPlace{0, -1}})
      EXPECT_THROW(replaced_rows(in, features, {{place}}), ShapeError) << place.to << " " << place.from;
    EXPECT_THROW(replaced_rows(in, narrow, {}), ShapeError);
  }
  tape.clear();
}

TEST_F(Rows, ConvertedRoundsValuesAndGradients) {
  std::vector<float> x = {1.001F, -3.14159F, 65537}, d = {1, 2, 3};
  {
    const auto in = input(x, {1, 1, 3});
    const auto y = converted(in, DType::bfloat16);
    const auto back = converted(y, DType::float32);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(back.floats()[i], static_cast<float>(bfloat16(x[i])));
    d[0] = 1.001F;
    run(back, d);
    const auto dx = grad(in);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(dx[i], static_cast<float>(bfloat16(d[i])));
  }
  tape.clear();
}

}  // namespace
}  // namespace tessera::autograd
