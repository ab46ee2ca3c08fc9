// Values that the backward pass computes again.
#include "framework/autograd/ops/recompute.h"

#include <gtest/gtest.h>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/norm.h"
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

/// Norms and activations, of which two products and an alias keep the result.
TEST_F(RecomputedValues, ADiscardedResultIsComputedAgainByItsOperation) {
  Weight gain({6}, 1), bias({6}, 2), fc({8, 6}, 3), v({5, 8}, 4), w({5, 8}, 5), narrow({5, 6}, 6), other({5, 6}, 7);
  const std::vector<Weight*> weights = {&gain, &bias, &fc, &v, &w, &narrow, &other};
  const auto act = kernels::Activation::gelu_tanh;
  const std::vector<std::function<Var(const Var&)>> operations = {
      [&](const Var& x) { return layernorm(x, gain.leaf, &bias.leaf, 1e-5, 1); },
      [&](const Var& x) { return layernorm(x, gain.leaf, nullptr, 1e-5, 0); },
      [&](const Var& x) { return rmsnorm(x, gain.leaf, 1e-5, 0); },
      [&](const Var& x) { return linear_activation(x, fc.leaf, nullptr, act); },
      [&](const Var& x) { return gated(linear(x, fc.leaf, nullptr), act); }};
  const std::vector<std::int64_t> widths = {6, 6, 6, 8, 4};
  auto x = normal(4 * 3 * 6, 9);
  const auto cotangent = normal(4 * 3 * 5, 10);
  Weight first({5, 4}, 11), second({5, 4}, 12);
  for (const auto type : {DType::float32, DType::bfloat16})
    for (std::size_t which = 0; which < operations.size(); ++which) {
      const auto width = widths[which];
      auto& a = width == 6 ? narrow : width == 8 ? v : first;
      auto& b = width == 6 ? other : width == 8 ? w : second;
      std::size_t kept[2];
      std::vector<std::vector<float>> results;
      for (const bool discards : {false, true}) {
        auto all = weights;
        all.insert(all.end(), {&first, &second});
        for (auto* one : all) std::fill(one->grad.begin(), one->grad.end(), 0.0F);
        auto& seen = results.emplace_back();
        {
          tape.computes_in(type);
          const auto in = tape.input(Tensor(std::span<float>(x), {4, 3, 6}), true);
          Var y;
          {
            const auto value = operations[which](in);
            ASSERT_EQ(value.shape().width(), width);
            y = dropout_add(linear(tape.alias(value, false), a.leaf, nullptr), linear(value, b.leaf, nullptr), {});
            if (discards) tape.discard(value);
          }
          kept[discards ? 1 : 0] = arena.in_use();
          tape.computes_in(DType::float32);  // as between the layers and the loss
          auto seed = cotangent;
          tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
          tape.backward();
          const auto dx = tape.take_grad(in);
          seen.assign(dx.tensor.floats().begin(), dx.tensor.floats().end());
        }
        tape.clear();
        EXPECT_EQ(arena.in_use(), 0u);
        for (const auto* one : all) seen.insert(seen.end(), one->grad.begin(), one->grad.end());
      }
      const auto bytes = static_cast<std::size_t>(12 * width) * size_of(type);
      EXPECT_EQ(kept[0] - kept[1], (bytes + 63) / 64 * 64) << which;
      EXPECT_EQ(results[0], results[1]) << which;
    }
}

TEST_F(RecomputedValues, WhatNoOperationCanComputeAgainIsNotDiscarded) {
  Weight a({5, 5}, 1), b({5, 5}, 2);
  auto x = normal(2 * 3 * 5, 9);
  {
    const auto in = tape.input(Tensor(std::span<float>(x), {2, 3, 5}), true);
    const auto value = linear(in, a.leaf, nullptr), y = linear(value, b.leaf, nullptr);
    const auto kept = arena.in_use();
    tape.discard(value);
    EXPECT_EQ(arena.in_use(), kept);
  }
  tape.clear();
}

}  // namespace
}  // namespace tessera::autograd
