// Adapters of linear layers against the weight that they stand for, W + scale B A, computed in double; gradients
// against central differences.
#include "framework/autograd/ops/low_rank.h"

#include <tuple>

#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/magnitude.h"
#include "framework/autograd/ops/residual.h"
#include "framework/autograd/ops/vocabulary_loss.h"
#include "tests/autograd/ops_fixture.h"

namespace tessera::autograd {
namespace {

constexpr std::int64_t in = 5, out = 9;

class LowRanks : public Ops {
 protected:
  /// Adapters of the rows 0-1 and 4-5, and of the rows 3 and 8, of a layer with 9 outputs.
  std::array<LowRankFactors, 2> two() {
    return {LowRankFactors{&a.leaf, &b.leaf, 0.5, first_rows}, LowRankFactors{&c.leaf, &d.leaf, 1.5, second_rows}};
  }
  std::array<kernels::DropoutMask, 2> masks(double rate) const {
    return {kernels::DropoutMask{RandomKey(1, Purpose::adapter_dropout, 1), samples, rate},
            kernels::DropoutMask{RandomKey(1, Purpose::adapter_dropout, 2), samples, rate}};
  }
  const std::vector<kernels::RowBlock> first_rows = {{0, 0, 2}, {4, 2, 2}}, second_rows = {{3, 0, 1}, {8, 1, 1}};
  const std::vector<std::int64_t> samples = {3, 8};
  Weight w{{out, in}, 1}, a{{2, in}, 2}, b{{4, 2}, 3}, c{{3, in}, 4}, d{{2, 3}, 5};
};

TEST_F(LowRanks, AddTheProductsOfTheirFactorsToTheirRowsOfTheWeight) {
  std::vector<double> merged(w.value.begin(), w.value.end());
  const auto merge = [&](const LowRankFactors& one) {
    const auto rank = one.a->value.shape()[0];
    for (const auto& block : one.rows)
      for (std::int64_t row = 0; row < block.count; ++row)
        for (std::int64_t i = 0; i < in; ++i)
          for (std::int64_t k = 0; k < rank; ++k)
            merged[static_cast<std::size_t>((block.in_layer + row) * in + i)] +=
                one.scale * one.b->value.floats()[static_cast<std::size_t>((block.in_factor + row) * rank + k)] *
                one.a->value.floats()[static_cast<std::size_t>(k * in + i)];
  };
  const auto adapters = two();
  for (const auto& one : adapters) merge(one);
  auto x = normal(2 * 3 * in, 9);
  const auto input = tape.input(Tensor(std::span<float>(x), {2, 3, in}), false);
  const auto y = add_low_rank(linear(input, w.leaf, nullptr), input, adapters, {});
  for (std::size_t row = 0; row < 6; ++row)
    for (std::size_t o = 0; o < out; ++o) {
      double expected = 0;
      for (std::size_t i = 0; i < in; ++i) expected += x[row * in + i] * merged[o * in + i];
      EXPECT_NEAR(y.floats()[row * out + o], expected, 1e-5) << row << " " << o;
    }
}

TEST_F(LowRanks, HaveTheGradientsOfTheirFactorsAndOfTheInput) {
  for (const double rate : {0.0, 0.4}) {
    SCOPED_TRACE(rate);
    for (auto* one : {&w, &a, &b, &c, &d}) std::ranges::fill(one->grad, 0.0F);
    const auto drawn = masks(rate);
    check({2, 3, in}, {&w, &a, &b, &c, &d}, [&, adapters = two()](Tape&, const Var& x) {
      return add_low_rank(linear(x, w.leaf, nullptr), x, adapters, drawn);
    });
    for (auto* one : {&a, &b, &c, &d}) std::ranges::fill(one->grad, 0.0F);
    const std::vector<kernels::RowBlock> rows = {{2, 0, 4}};
    const LowRankFactors alone{&a.leaf, &b.leaf, 2, rows};
    check({2, 3, in}, {&a, &b}, [&](Tape&, const Var& x) {
      return add_low_rank(linear(x, w.leaf, nullptr), x, {&alone, 1}, std::span(drawn).first(1));
    });
    // The input gets its gradient from a later operation first.
    check({2, 3, in}, {&c, &d}, [&, second = two()[1]](Tape&, const Var& x) {
      auto y = add_low_rank(linear(x, w.leaf, nullptr), x, {&second, 1}, std::span(drawn).last(1));
      return add_low_rank(std::move(y), x, {&alone, 1}, std::span(drawn).first(1));
    });
  }
}

TEST_F(LowRanks, TrainBesideAFrozenWeightAndAnInputWithoutGradient) {
  w.leaf.bind_grad({});
  auto x = normal(2 * 3 * in, 9), dy = normal(2 * 3 * out, 10);
  const auto adapters = two();
  std::size_t kept = 0;
  for (const bool trains_a : {true, false}) {
    if (!trains_a) a.leaf.bind_grad({}), c.leaf.bind_grad({});
    {
      const auto input = tape.input(Tensor(std::span<float>(x), {2, 3, in}), false);
      const auto y = add_low_rank(linear(input, w.leaf, nullptr), input, adapters, {});
      EXPECT_TRUE(y.wants_grad());
      kept = arena.in_use();
      tape.seed(y, Tensor(std::span<float>(dy), y.shape()));
      tape.backward();
    }
    tape.clear();
    EXPECT_TRUE(std::ranges::any_of(b.grad, [](float g) { return g != 0; }));
    EXPECT_EQ(std::ranges::any_of(a.grad, [](float g) { return g != 0; }), trains_a);
    std::ranges::fill(a.grad, 0.0F), std::ranges::fill(b.grad, 0.0F);
  }
  EXPECT_GT(kept, 0u);
}

TEST_F(LowRanks, GiveTheSameBitsForAnyNumberOfThreads) {
  const auto adapters = two();
  const auto drawn = masks(0.3);
  auto x = normal(2 * 3 * in, 9), dy = normal(2 * 3 * out, 10);
  std::vector<std::vector<float>> seen;
  for (const int count : {1, 2, 3}) {
    for (auto* one : {&w, &a, &b, &c, &d}) std::ranges::fill(one->grad, 0.0F);
    kernels::Threads some(count);
    Tape own(arena, some, true);
    auto& all = seen.emplace_back();
    {
      const auto input = own.input(Tensor(std::span<float>(x), {2, 3, in}), true);
      const auto y = add_low_rank(linear(input, w.leaf, nullptr), input, adapters, drawn);
      all.assign(y.floats().begin(), y.floats().end());
      own.seed(y, Tensor(std::span<float>(dy), y.shape()));
      own.backward();
      const auto dx = own.take_grad(input);
      all.insert(all.end(), dx.tensor.floats().begin(), dx.tensor.floats().end());
    }
    for (const auto* one : {&w, &a, &b, &c, &d}) all.insert(all.end(), one->grad.begin(), one->grad.end());
    EXPECT_EQ(all, seen.front()) << count;
  }
}

TEST_F(LowRanks, OfTheOutputLayerHaveTheGradientsOfTheLoss) {
  constexpr std::int64_t width = 4, vocabulary = 7, rank = 2;
  Weight head({vocabulary, width}, 1), lower({rank, width}, 2), upper({vocabulary, rank}, 3);
  const std::vector<std::int32_t> labels = {0, 6, 3, -1, 2, 2};
  const std::vector<float> mask = {1, 1, 0.5F, 0, 1, 1};
  auto x = normal(6 * width, 9);
  for (const double cap : {0.0, 2.0}) {
    const LossTerms terms{.labels = labels, .mask = mask, .softcap = cap};
    const auto loss_of = [&](Tape&, const Var& h) {
      return vocabulary_loss(h, head.leaf, terms, {linear(h, lower.leaf, nullptr), &upper.leaf});
    };
    std::vector<float> dx(x.size());
    const auto clear = [&] {
      for (auto* one : {&head, &lower, &upper}) std::ranges::fill(one->grad, 0.0F);
    };
    clear();
    {
      const auto h = tape.input(Tensor(std::span<float>(x), {2, 3, width}), true);
      const auto result = loss_of(tape, h);
      tape.backward();
      const auto grad = tape.take_grad(h);
      std::copy_n(grad.tensor.floats().begin(), dx.size(), dx.begin());
    }
    tape.clear();
    const auto loss = [&] {
      Tape looking(arena, threads, false);
      return loss_of(looking, looking.input(Tensor(std::span<float>(x), {2, 3, width}), false)).total.sum;
    };
    compare(x, dx, loss, "h");
    for (auto* one : {&head, &lower, &upper}) compare(one->value, one->grad, loss, "a weight");
    // The same from the losses of tokens, with the mask as their gradient.
    const auto before = upper.grad;
    clear();
    {
      const auto h = tape.input(Tensor(std::span<float>(x), {2, 3, width}), true);
      const auto each = token_losses(h, head.leaf, terms, {linear(h, lower.leaf, nullptr), &upper.leaf});
      auto seeds = mask;
      tape.seed(each, Tensor(std::span<float>(seeds), {2, 3}));
      tape.backward();
    }
    tape.clear();
    for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(upper.grad[i], before[i], 1e-5);
  }
}

// y = m / n ((h - rest) w^T + u b^T) + rest w^T + bias, with the norms as constants.
TEST_F(LowRanks, OfTheOutputLayerWithMagnitudesHaveTheGradientsOfTheLoss) {
  constexpr std::int64_t width = 4, vocabulary = 7, rank = 2;
  Weight head({vocabulary, width}, 1), lower({rank, width}, 2), upper({vocabulary, rank}, 3), sizes({vocabulary}, 4),
      bias({vocabulary}, 5);
  const std::vector<std::int32_t> labels = {0, 6, 3, -1, 2, 2};
  const std::vector<float> mask = {1, 1, 0.5F, 0, 1, 1}, norms = {1, 2, 0.5F, 3, 1.5F, 0.75F, 1.25F};
  auto x = normal(6 * width, 9);
  for (const double rate : {0.0, 0.4})
    for (const double cap : {0.0, 2.0}) {
      const LossTerms terms{.labels = labels, .mask = mask, .softcap = cap, .bias = &bias.leaf};
      const kernels::DropoutMask dropped{RandomKey(1, Purpose::adapter_dropout, 1), samples, rate};
      const auto adapter_of = [&](const Var& h) {
        LogitAdapter made{.b = &upper.leaf, .m = &sizes.leaf, .norms = norms};
        auto kept = h;
        if (rate > 0) std::tie(kept, made.rest) = split_by_dropout(h, dropped);
        made.u = linear(kept, lower.leaf, nullptr);
        return made;
      };
      std::vector<float> dx(x.size());
      const auto clear = [&] {
        for (auto* one : {&head, &lower, &upper, &sizes, &bias}) std::ranges::fill(one->grad, 0.0F);
      };
      clear();
      {
        const auto h = tape.input(Tensor(std::span<float>(x), {2, 3, width}), true);
        vocabulary_loss(h, head.leaf, terms, adapter_of(h));
        tape.backward();
        const auto grad = tape.take_grad(h);
        std::copy_n(grad.tensor.floats().begin(), dx.size(), dx.begin());
      }
      tape.clear();
      const auto loss = [&] {
        Tape looking(arena, threads, false);
        const auto h = looking.input(Tensor(std::span<float>(x), {2, 3, width}), false);
        return vocabulary_loss(h, head.leaf, terms, adapter_of(h)).total.sum;
      };
      compare(x, dx, loss, "h");
      for (auto* one : {&head, &lower, &upper, &sizes, &bias}) compare(one->value, one->grad, loss, "a weight");
      // The same from the losses of tokens, with the mask as their gradient.
      const auto of_b = upper.grad, of_m = sizes.grad;
      clear();
      {
        const auto h = tape.input(Tensor(std::span<float>(x), {2, 3, width}), true);
        const auto each = token_losses(h, head.leaf, terms, adapter_of(h));
        auto seeds = mask;
        tape.seed(each, Tensor(std::span<float>(seeds), {2, 3}));
        tape.backward();
        const auto grad = tape.take_grad(h);
        for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(grad.tensor.floats()[i], dx[i], 1e-5);
      }
      tape.clear();
      for (std::size_t i = 0; i < of_b.size(); ++i) EXPECT_NEAR(upper.grad[i], of_b[i], 1e-5);
      for (std::size_t i = 0; i < of_m.size(); ++i) EXPECT_NEAR(sizes.grad[i], of_m[i], 1e-5);
    }
}

TEST_F(LowRanks, OfAnEmbeddingAreColumnsOfTheirFactor) {
  constexpr std::int64_t vocabulary = 8, rank = 2;
  Weight table({rank, vocabulary / 2}, 1), b_of_words({in, rank}, 2);
  const std::vector<std::int32_t> tokens = {1, 5, 7, 5, 4, 6};  // columns 4-7 are here
  check({2, 3, in}, {&table, &b_of_words}, [&](Tape& on, const Var& x) {
    auto more = linear(embedded_columns(on, {2, 3}, tokens, table.leaf, vocabulary, 4), b_of_words.leaf, nullptr);
    return dropout_add(std::move(more), x, masks(0)[0]);
  });
  const auto y = embedded_columns(tape, {2, 3}, tokens, table.leaf, vocabulary, 4);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    for (std::size_t k = 0; k < 2; ++k) {
      const auto column = tokens[i] - 4;
      EXPECT_EQ(y.floats()[2 * i + k], column < 0 ? 0 : table.value[4 * k + static_cast<std::size_t>(column)]) << i;
    }
  const std::vector<std::int32_t> wrong = {8};
  EXPECT_THROW(embedded_columns(tape, {1, 1}, wrong, table.leaf, vocabulary, 4), ShapeError);
}

TEST_F(LowRanks, RefuseFactorsOfOtherExtents) {
  const auto adapters = two();
  auto x = normal(2 * 3 * 4, 9);
  Weight narrow({out, 4}, 1);
  const auto input = tape.input(Tensor(std::span<float>(x), {2, 3, 4}), false);
  EXPECT_THROW(add_low_rank(linear(input, narrow.leaf, nullptr), input, adapters, {}), ShapeError);
}

}  // namespace
}  // namespace tessera::autograd
