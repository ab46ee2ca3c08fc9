// Parts of rows as differentiable operations. They are linear and copy, so values and gradients are exact.
#include "framework/autograd/ops/columns.h"

#include "framework/base/error.h"
#include "tests/autograd/exact_ops.h"

namespace tessera::autograd {
namespace {

using Columns = ExactOps;

TEST_F(Columns, OfTwoValuesAreSetSideBySideAndTheGradientIsCutApart) {
  auto a = integers(2 * 3 * 4, 1), b = integers(2 * 3 * 3, 2), d = integers(2 * 3 * 7, 3);
  {
    const auto left = input(a, {2, 3, 4}), right = input(b, {2, 3, 3});
    const auto y = side_by_side(left, right);
    EXPECT_EQ(y.shape(), (Shape{2, 3, 7}));
    run(y, d);
    const auto da = grad(left), db = grad(right);
    for (std::size_t r = 0; r < 6; ++r)
      for (std::size_t c = 0; c < 7; ++c) {
        EXPECT_EQ(y.floats()[r * 7 + c], c < 4 ? a[r * 4 + c] : b[r * 3 + c - 4]);
        EXPECT_EQ(d[r * 7 + c], c < 4 ? da[r * 4 + c] : db[r * 3 + c - 4]);
      }
    EXPECT_THROW(side_by_side(left, columns(right, 0, 3).tape().make({5, 3}, false)), ShapeError);
  }
  tape.clear();
}

TEST_F(Columns, OfOneValueAreCopiedAndTheirGradientsAreAddedUp) {
  auto x = integers(2 * 3 * 7, 1), d = integers(2 * 3 * 5, 2);
  std::vector<float> dx;
  {
    const auto in = input(x, {2, 3, 7});
    const auto y = columns(in, 1, 5), z = columns(in, 4, 3);  // they overlap
    auto dz = integers(2 * 3 * 3, 3);
    for (std::size_t r = 0; r < 6; ++r)
      for (std::size_t c = 0; c < 5; ++c) EXPECT_EQ(y.floats()[r * 5 + c], x[r * 7 + 1 + c]);
    tape.seed(z, Tensor(std::span<float>(dz), z.shape()));
    run(y, d);
    dx = grad(in);
    for (std::size_t r = 0; r < 6; ++r)
      for (std::size_t c = 0; c < 7; ++c) {
        const float from_y = c >= 1 && c < 6 ? d[r * 5 + c - 1] : 0, from_z = c >= 4 ? dz[r * 3 + c - 4] : 0;
        EXPECT_EQ(dx[r * 7 + c], from_y + from_z);
      }
    EXPECT_THROW(columns(in, 3, 5), ShapeError);
  }
  tape.clear();
}

TEST_F(Columns, OfHeadsAreTheirFirstChannels) {
  auto x = integers(4 * 12, 1), d = integers(4 * 6, 2);
  {
    const auto in = input(x, {4, 12});
    const auto y = head_columns(in, 3, 2);
    run(y, d);
    const auto dx = grad(in);
    for (std::size_t r = 0; r < 4; ++r)
      for (std::size_t c = 0; c < 12; ++c) EXPECT_EQ(dx[r * 12 + c], c % 4 < 2 ? d[r * 6 + c / 4 * 2 + c % 4] : 0);
    for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(y.floats()[i], x[i / 6 * 12 + i % 6 / 2 * 4 + i % 2]);
  }
  tape.clear();
}

TEST_F(Columns, LatentHeadsPutQueriesKeysAndValuesTogether) {
  for (const std::int64_t value : {2, 5, 7}) {
    const LatentHeads h{3, 3, 2, value};
    const auto D = static_cast<std::size_t>(h.width()), V = static_cast<std::size_t>(value);
    auto q = integers(4 * 15, 1), kv = integers(4 * 3 * (3 + value), 2), kr = integers(4 * 2, 3);
    {
      const auto a = input(q, {4, 15}), b = input(kv, {4, 3 * (3 + value)}), c = input(kr, {4, 2});
      const auto y = latent_heads(a, b, c, h);
      ASSERT_EQ(y.shape(), (Shape{4, 3 * 3 * h.width()}));
      auto d = integers(y.shape().elements(), 4);
      std::vector<float> dq(q.size(), 0), dkv(kv.size(), 0), dkr(kr.size(), 0);
      for (std::size_t t = 0; t < 4; ++t)
        for (std::size_t i = 0; i < 3; ++i)
          for (std::size_t part = 0; part < 3; ++part)
            for (std::size_t j = 0; j < D; ++j) {
              const auto at = ((t * 3 + i) * 3 + part) * D + j;
              float expected = 0;
              if (part == 0 && j < 5) expected = q[t * 15 + i * 5 + j], dq[t * 15 + i * 5 + j] += d[at];
              const auto of_kv = (t * 3 + i) * (3 + V);
              if (part == 1 && j < 3) expected = kv[of_kv + j], dkv[of_kv + j] += d[at];
              if (part == 1 && j >= 3 && j < 5) expected = kr[t * 2 + j - 3], dkr[t * 2 + j - 3] += d[at];
              if (part == 2 && j < V) expected = kv[of_kv + 3 + j], dkv[of_kv + 3 + j] += d[at];
              EXPECT_EQ(y.floats()[at], expected);
            }
      run(y, d);
      EXPECT_EQ(grad(a), dq);
      EXPECT_EQ(grad(b), dkv);
      EXPECT_EQ(grad(c), dkr);
    }
    tape.clear();
  }
}

}  // namespace
}  // namespace tessera::autograd
