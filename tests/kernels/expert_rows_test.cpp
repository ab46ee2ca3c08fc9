#include "framework/kernels/expert_rows.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/base/error.h"
#include "framework/kernels/activation.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

class ExpertRows : public testing::Test {
 protected:
  ExpertRows() { std::cout << "seed " << seed << "\n"; }
  std::int64_t upto(std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); }
  std::vector<float> draw(std::int64_t count) {
    return random_normal(static_cast<std::size_t>(count), static_cast<unsigned>(random()));
  }
  /// Distinct experts for each token; some choices dropped if `drops`.
  std::vector<std::int32_t> draw_choices(std::int64_t tokens, std::int64_t topk, std::int64_t experts, bool drops) {
    std::vector<std::int32_t> all;
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::vector<std::int32_t> order(static_cast<std::size_t>(experts));
      for (std::size_t e = 0; e < order.size(); ++e) order[e] = static_cast<std::int32_t>(e);
      std::shuffle(order.begin(), order.end(), random);
      for (std::int64_t k = 0; k < topk; ++k)
        all.push_back(drops && upto(4) == 1 ? -1 : order[static_cast<std::size_t>(k)]);
    }
    return all;
  }

  const unsigned seed = std::random_device()();
  std::mt19937 random{seed};
  Threads threads{2};
};

TEST_F(ExpertRows, AreSortedByExpertAndToken) {
  for (int round = 0; round < 50; ++round) {
    const auto experts = upto(9), topk = upto(experts), tokens = upto(40);
    const auto chosen = draw_choices(tokens, topk, experts, round % 2 == 1);
    std::vector<std::int64_t> first(static_cast<std::size_t>(experts) + 1);
    std::vector<std::int32_t> token(chosen.size()), row(chosen.size());
    sort_choices(topk, chosen, first, token, row);
    std::int64_t next = 0;
    for (std::int32_t e = 0; e < experts; ++e) {
      ASSERT_EQ(first[static_cast<std::size_t>(e)], next);
      for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (chosen[i] != e) continue;
        ASSERT_EQ(row[i], next);
        ASSERT_EQ(token[static_cast<std::size_t>(next++)], static_cast<std::int32_t>(i) / topk);
      }
    }
    ASSERT_EQ(first.back(), next);
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (chosen[i] < 0) {
        ASSERT_EQ(row[i], -1);
      }
    }
  }
}

TEST_F(ExpertRows, GoToTheExpertsAndBack) {
  for (const auto type : {DType::float32, DType::bfloat16}) {
    const std::int64_t experts = 5, topk = 3, tokens = 17, width = upto(2000);
    const auto chosen = draw_choices(tokens, topk, experts, true);
    std::vector<std::int64_t> first(6);
    std::vector<std::int32_t> token(chosen.size()), row(chosen.size());
    sort_choices(topk, chosen, first, token, row);
    token.resize(static_cast<std::size_t>(first.back()));
    auto x = draw(tokens * width);
    round_to(threads, type, x);
    std::vector<std::byte> typed(x.size() * size_of(type)),
        rows(token.size() * static_cast<std::size_t>(width) * size_of(type));
    const MutableElements in(typed.data(), x.size(), type), out(rows.data(), rows.size() / size_of(type), type);
    narrow(threads, x, in);
    gather_rows(threads, width, token, in, out);
    std::vector<float> gathered(out.size());
    widen(threads, out, gathered);
    std::vector<double> expected(x.size(), 0);
    std::vector<int> kept(static_cast<std::size_t>(tokens), 0);
    for (std::size_t i = 0; i < chosen.size(); ++i) kept[i / 3] += chosen[i] >= 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      expected[i] = static_cast<double>(x[i]) * kept[i / static_cast<std::size_t>(width)];
    auto y = draw(tokens * width);
    const auto before = y;
    sum_rows(threads, topk, width, row, gathered, y, false);
    EXPECT_CLOSE(y, expected, 1e-6);
    for (std::size_t i = 0; i < y.size(); ++i) expected[i] += static_cast<double>(before[i]);
    y = before;
    sum_rows(threads, topk, width, row, gathered, y, true);
    EXPECT_CLOSE(y, expected, 1e-6);
  }
}

TEST_F(ExpertRows, AreDroppedBeyondTheCapacityByTheirWeights) {
  for (int round = 0; round < 50; ++round) {
    const std::int64_t experts = upto(6), topk = upto(experts), sequences = upto(3), tokens = sequences * upto(12);
    const auto capacity = upto(tokens);
    const auto all = draw_choices(tokens, topk, experts, false);
    auto kept = all;
    auto weights = draw(tokens * topk);
    if (round % 2 == 1) std::fill(weights.begin(), weights.end(), 0.5F);
    const auto given = weights;
    drop_choices(DropPolicy::probs, experts, topk, capacity, sequences, kept, weights);
    const auto S = tokens / sequences;
    for (std::size_t i = 0; i < all.size(); ++i) {
      std::int64_t better = 0;  // choices of the same expert that go first
      for (std::size_t j = 0; j < all.size(); ++j) {
        const auto order = [&](std::size_t c) {
          const auto t = static_cast<std::int64_t>(c) / topk;
          return t % S * sequences + t / S;
        };
        better += all[j] == all[i] && (given[j] > given[i] || (given[j] == given[i] && order(j) < order(i)));
      }
      ASSERT_EQ(kept[i], better < capacity ? all[i] : -1);
      ASSERT_EQ(weights[i], better < capacity ? given[i] : 0.0F);
    }
  }
}

// Which tokens go is held to recorded losses of Megatron-LM; here, how many.
TEST_F(ExpertRows, AreDroppedByPositionDownToTheCapacity) {
  for (int round = 0; round < 50; ++round) {
    const std::int64_t sequences = 2, tokens = 2 * upto(60), capacity = upto(tokens);
    const auto all = draw_choices(tokens, 1, 2, false);
    auto kept = all;
    std::vector<float> weights(all.size(), 0.5F);
    drop_choices(DropPolicy::position, 2, 1, capacity, sequences, kept, weights);
    for (std::int32_t e = 0; e < 2; ++e) {
      const auto wanted = std::count(all.begin(), all.end(), e), left = std::count(kept.begin(), kept.end(), e);
      EXPECT_EQ(left, std::min<std::int64_t>(wanted, capacity));
    }
  }
}

TEST_F(ExpertRows, CapacityIsThatOfMegatron) {
  EXPECT_EQ(expert_capacity(64, 2, 4, 1.0), 32);
  EXPECT_EQ(expert_capacity(64, 2, 4, 0.75), 24);
  EXPECT_EQ(expert_capacity(63, 2, 4, 1.0), 32);
  EXPECT_EQ(expert_capacity(64, 2, 4, 100.0), 64);
}

TEST_F(ExpertRows, WeightedActivationsAndTheirGradients) {
  for (const bool gated : {false, true}) {
    const std::int64_t rows = upto(40), width = upto(40), wide = gated ? 2 * width : width;
    const auto x = draw(rows * wide), weight = draw(rows), dy = draw(rows * width);
    std::vector<float> plain(static_cast<std::size_t>(rows * width)), y(plain.size()), dx(x.size()),
        dweight(weight.size());
    if (gated)
      gated_forward(threads, Activation::silu, rows, width, x, plain);
    else
      activation_forward(threads, Activation::silu, x, plain);
    weighted_activation_forward(threads, Activation::silu, gated, width, x, weight, y);
    weighted_activation_backward(threads, Activation::silu, gated, width, dy, x, weight, dx, dweight);
    std::vector<double> expected(y.size()), expected_dweight(weight.size(), 0);
    std::vector<float> scaled(dy), expected_dx(x.size());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const auto r = i / static_cast<std::size_t>(width);
      expected[i] = static_cast<double>(plain[i]) * static_cast<double>(weight[r]);
      expected_dweight[r] += static_cast<double>(dy[i]) * static_cast<double>(plain[i]);
      scaled[i] *= weight[r];
    }
    if (gated)
      gated_backward(threads, Activation::silu, rows, width, scaled, x, expected_dx, false);
    else
      activation_backward(threads, Activation::silu, scaled, x, expected_dx, false);
    EXPECT_CLOSE(y, expected, 1e-6);
    EXPECT_CLOSE(dweight, expected_dweight, 1e-5);
    EXPECT_TRUE(same_bits(dx, expected_dx));
  }
}

TEST_F(ExpertRows, BiasesAndTheirGradients) {
  for (const bool weighted : {false, true}) {
    const std::int64_t rows = upto(40), width = upto(600);
    const auto n = static_cast<std::size_t>(width);
    const double factor = 0.5;
    const auto bias = draw(width), before = draw(rows * width), drows = draw(rows * width), old = draw(width);
    const auto weight = weighted ? draw(rows) : std::vector<float>();
    auto y = before, dbias = old;
    std::vector<float> dweight(weight.size(), 0.25F);
    add_bias_rows(threads, bias, factor, weight, y);
    add_bias_rows_backward(threads, bias, factor, weight, drows, dbias, dweight);
    std::vector<double> expected(y.size()), expected_dbias(old.begin(), old.end()),
        expected_dweight(weight.size(), 0.25);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double by = weighted ? weight[i / n] : 1;
      expected[i] = before[i] + factor * by * bias[i % n];
      expected_dbias[i % n] += by * drows[i];
      if (weighted) expected_dweight[i / n] += factor * drows[i] * bias[i % n];
    }
    EXPECT_CLOSE(y, expected, 1e-6);
    EXPECT_CLOSE(dbias, expected_dbias, 1e-5);
    EXPECT_CLOSE(dweight, expected_dweight, 1e-5);
  }
}

}  // namespace
}  // namespace tessera::kernels
