// Values that the backward pass computes again.
#include "framework/autograd/ops/recompute.h"

#include <gtest/gtest.h>

#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/residual.h"
#include "tests/autograd/weight.h"

namespace tessera::autograd {
namespace {

class RecomputedValues : public testing::Test {
 protected:
  kernels::Threads threads{2};
  Arena arena;
  Tape tape{arena, threads, true};
};

TEST_F(RecomputedValues, ARecomputedValueGivesTheSameBitsAndIsNotKeptOnceItIsDiscarded) {
  Weight a({8, 5}, 1), b({8, 4}, 2), v({6, 8}, 3);
  auto x = normal(2 * 3 * 5, 9), z = normal(2 * 3 * 4, 10);
  const auto cotangent = normal(2 * 3 * 6, 11);
  const auto sum = [&](const std::array<Var, 2>& in) {
    return dropout_add(linear(in[0], a.leaf, nullptr), linear(in[1], b.leaf, nullptr), {});
  };
  enum How { plain, recomputed_value, discarded };
  std::size_t kept[3];
  std::vector<std::vector<float>> results;
  for (const auto how : {plain, recomputed_value, discarded}) {
    for (auto* w : {&a, &b, &v}) std::fill(w->grad.begin(), w->grad.end(), 0.0F);
    int ready = 0;
    tape.on_grad_ready([&](Leaf&) { ++ready; });
    auto& all = results.emplace_back();
    {
      const std::array<Var, 2> in = {tape.input(Tensor(std::span<float>(x), {2, 3, 5}), true),
                                     tape.input(Tensor(std::span<float>(z), {2, 3, 4}), true)};
      Var y;
      if (how == plain) {
        y = linear(sum(in), v.leaf, nullptr);
      } else {
        RecomputedValue value(in, sum);
        y = linear(value.value(), v.leaf, nullptr);
        if (how == discarded) value.discard();
      }
      kept[how] = arena.in_use();
      all.assign(y.floats().begin(), y.floats().end());
      auto seed = cotangent;
      tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
      tape.backward();
      for (const auto& one : in) {
        const auto dx = tape.take_grad(one);
        all.insert(all.end(), dx.tensor.floats().begin(), dx.tensor.floats().end());
      }
    }
    tape.clear();
    for (auto* w : {&a, &b, &v}) all.insert(all.end(), w->grad.begin(), w->grad.end());
    EXPECT_EQ(ready, 3) << how;
    EXPECT_EQ(arena.in_use(), 0u) << how;
  }
  tape.on_grad_ready({});
  EXPECT_EQ(results[plain], results[recomputed_value]);
  EXPECT_EQ(results[plain], results[discarded]);
  EXPECT_EQ(kept[plain], kept[recomputed_value]);
  EXPECT_EQ(kept[discarded] + 192, kept[recomputed_value]);  // the 48 floats of the value
}

TEST_F(RecomputedValues, ARecomputedValueOfATapeThatRecordsNothingIsJustComputed) {
  Weight a({5, 5}, 1);
  Tape looking(arena, threads, false);
  auto x = normal(2 * 3 * 5, 9);
  {
    const std::array<Var, 1> in = {looking.input(Tensor(std::span<float>(x), {2, 3, 5}), false)};
    RecomputedValue value(in, [&](const std::array<Var, 1>& v) { return linear(v[0], a.leaf, nullptr); });
    const auto y = linear(in[0], a.leaf, nullptr);
    value.discard();
    EXPECT_TRUE(std::equal(y.floats().begin(), y.floats().end(), value.value().floats().begin()));
  }
  looking.clear();
}

}  // namespace
}  // namespace tessera::autograd
