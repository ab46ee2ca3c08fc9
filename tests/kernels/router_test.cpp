// Routers against a plain computation in double, for random rules.
#include "framework/kernels/router.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "framework/base/error.h"
#include "tests/gradcheck.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Row = std::vector<double>;

Row softmax(const Row& x) {
  const double most = *std::max_element(x.begin(), x.end());
  Row p(x.size());
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += p[i] = std::exp(x[i] - most);
  for (auto& v : p) v /= sum;
  return p;
}
Row sigmoids(const Row& x) {
  Row s(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) s[i] = 1 / (1 + std::exp(-x[i]));
  return s;
}

/// The `count` best of the allowed indices, the best first; of equal values the lower index.
std::vector<int> best(const Row& values, std::size_t count, const std::vector<bool>& allowed) {
  std::vector<int> order;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (allowed[i]) order.push_back(static_cast<int>(i));
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
  });
  order.resize(count);
  return order;
}

std::vector<int> chosen_of(const RouterRule& rule, const Row& logits, const Row& bias) {
  Row values = logits;
  if (rule.score == RouterScore::sigmoid)
    values = sigmoids(logits);
  else if (rule.pre_softmax)
    values = softmax(logits);
  for (std::size_t e = 0; e < bias.size(); ++e) values[e] += bias[e];
  std::vector<bool> allowed(values.size(), true);
  if (rule.groups > 0) {
    const auto size = values.size() / static_cast<std::size_t>(rule.groups);
    const auto counted = static_cast<std::size_t>(rule.topk / rule.groups_kept);
    Row of_group;
    for (std::size_t g = 0; g < static_cast<std::size_t>(rule.groups); ++g) {
      Row group(values.begin() + static_cast<std::ptrdiff_t>(g * size),
                values.begin() + static_cast<std::ptrdiff_t>((g + 1) * size));
      std::sort(group.rbegin(), group.rend());
      of_group.push_back(std::accumulate(group.begin(), group.begin() + static_cast<std::ptrdiff_t>(counted), 0.0));
    }
    allowed.assign(values.size(), false);
    for (const int g :
         best(of_group, static_cast<std::size_t>(rule.groups_kept), std::vector<bool>(of_group.size(), true)))
      std::fill_n(allowed.begin() + g * static_cast<std::ptrdiff_t>(size), size, true);
  }
  return best(values, static_cast<std::size_t>(rule.topk), allowed);
}

Row weights_of(const RouterRule& rule, const Row& logits, const std::vector<int>& chosen) {
  Row all = rule.score == RouterScore::sigmoid ? sigmoids(logits) : softmax(logits), out;
  for (const int e : chosen) out.push_back(all[static_cast<std::size_t>(e)]);
  const double sum = std::accumulate(out.begin(), out.end(), 0.0);
  const bool divides = rule.score == RouterScore::sigmoid ? out.size() > 1 : !rule.pre_softmax;
  for (auto& w : out) w *= rule.scaling / (divides ? sum : 1.0);
  return out;
}

Row balance_scores(const RouterRule& rule, const Row& logits) {
  if (rule.score == RouterScore::softmax) return softmax(logits);
  auto s = sigmoids(logits);
  const double sum = std::accumulate(s.begin(), s.end(), 0.0);
  for (auto& v : s) v /= sum;
  return s;
}

class Router : public testing::Test {
 protected:
  Router() { std::cout << "seed " << seed << "\n"; }
  std::int64_t upto(std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random); }
  bool coin() { return upto(2) == 1; }
  RouterRule draw_rule() {
    RouterRule rule{1, 1};
    rule.score = coin() ? RouterScore::softmax : RouterScore::sigmoid;
    rule.pre_softmax = coin();
    rule.scaling = coin() ? 1 : 2.5;
    if (coin()) {
      const auto kept = upto(2), of_group = upto(2);  // topk = kept * of_group
      rule.groups = kept + upto(3) - 1;
      rule.groups_kept = kept;
      rule.topk = kept * of_group;
      rule.experts = rule.groups * (of_group + upto(4) - 1);
    } else {
      rule.experts = upto(20);
      rule.topk = upto(rule.experts);
    }
    return rule;
  }
  std::vector<float> draw(std::int64_t count, float deviation) {
    return random_normal(static_cast<std::size_t>(count), static_cast<unsigned>(random()), 0, deviation);
  }
  static Row row(std::span<const float> all, std::size_t index, std::int64_t width) {
    const auto n = static_cast<std::size_t>(width);
    return {all.begin() + static_cast<std::ptrdiff_t>(index * n),
            all.begin() + static_cast<std::ptrdiff_t>((index + 1) * n)};
  }

  const unsigned seed = std::random_device()();
  std::mt19937 random{seed};
  Threads threads{2};
};

TEST_F(Router, ChoosesAndWeighsAsThePlainComputation) {
  for (int round = 0; round < 200; ++round) {
    const auto rule = draw_rule();
    const auto T = upto(70);
    auto logits = draw(T * rule.experts, 2);
    if (coin())  // many equal values
      for (auto& l : logits) l = std::round(l);
    const bool biased = rule.score == RouterScore::sigmoid && coin();
    const auto bias = biased ? draw(rule.experts, 0.2F) : std::vector<float>();
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(T * rule.topk));
    std::vector<float> weights(chosen.size());
    choose_experts(threads, rule, logits, bias, chosen);
    choice_weights(threads, rule, logits, chosen, weights);
    for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
      const auto expected = chosen_of(rule, row(logits, t, rule.experts), Row(bias.begin(), bias.end()));
      const auto weight = weights_of(rule, row(logits, t, rule.experts), expected);
      for (std::size_t k = 0; k < expected.size(); ++k) {
        const auto i = t * expected.size() + k;
        ASSERT_EQ(chosen[i], expected[k]) << "round " << round << ", token " << t << ", choice " << k;
        ASSERT_NEAR(weights[i], weight[k], 1e-6 * std::max(1.0, weight[k]));
      }
    }
  }
}

TEST_F(Router, TheGapIsTheLeastChangeThatAnotherChoiceTakes) {
  for (int round = 0; round < 200; ++round) {
    auto rule = draw_rule();
    rule.score = RouterScore::softmax;
    rule.pre_softmax = false;  // chosen by the logits themselves
    const std::int64_t T = upto(40);
    const auto logits = draw(T * rule.experts, 1);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(T * rule.topk)), again(chosen.size());
    const auto gap = choose_experts(threads, rule, logits, {}, chosen);
    ASSERT_EQ(std::isinf(gap), rule.topk == rule.experts) << "round " << round;
    if (rule.groups == 0) {
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t t = 0; t < static_cast<std::size_t>(T) && rule.topk < rule.experts; ++t) {
        auto values = row(logits, t, rule.experts);
        std::sort(values.rbegin(), values.rend());
        const auto k = static_cast<std::size_t>(rule.topk);
        least = std::min(least, values[k - 1] - values[k]);
      }
      ASSERT_EQ(gap, least) << "round " << round;
    }
    if (std::isinf(gap)) continue;
    auto moved = logits;
    for (auto& l : moved) l += static_cast<float>((coin() ? 0.49 : -0.49) * gap);
    choose_experts(threads, rule, moved, {}, again);
    for (auto* all : {&chosen, &again})  // the order of the chosen may change
      for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t)
        std::sort(all->begin() + static_cast<std::ptrdiff_t>(t) * rule.topk,
                  all->begin() + static_cast<std::ptrdiff_t>(t + 1) * rule.topk);
    if (gap < 1e-5) continue;  // rounding of the moved logits counts
    ASSERT_EQ(chosen, again) << "round " << round;
  }
}

TEST_F(Router, GivesTheGradientsOfWeightsAndLosses) {
  for (int round = 0; round < 40; ++round) {
    auto rule = draw_rule();
    rule.groups = 0;
    const std::int64_t sequences = upto(3), T = sequences * upto(3), E = rule.experts;
    const auto logits = draw(T * E, 1);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(T * rule.topk));
    choose_experts(threads, rule, logits, {}, chosen);
    const auto dweights = draw(T * rule.topk, 1);
    std::vector<double> factor(static_cast<std::size_t>(sequences * E));
    for (auto& f : factor) f = std::normal_distribution<double>()(random);
    const auto objective = [&](const Row& at) {
      double sum = 0;
      for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
        const Row l(at.begin() + static_cast<std::ptrdiff_t>(t) * E,
                    at.begin() + static_cast<std::ptrdiff_t>(t + 1) * E);
        const auto K = static_cast<std::size_t>(rule.topk);
        const auto w = weights_of(rule, l,
                                  {chosen.begin() + static_cast<std::ptrdiff_t>(t * K),
                                   chosen.begin() + static_cast<std::ptrdiff_t>((t + 1) * K)});
        for (std::size_t k = 0; k < K; ++k) sum += w[k] * static_cast<double>(dweights[t * K + k]);
        const auto s = balance_scores(rule, l);
        const auto b = t / (static_cast<std::size_t>(T) / static_cast<std::size_t>(sequences));
        for (std::size_t e = 0; e < s.size(); ++e) sum += factor[b * s.size() + e] * s[e];
        double exponentials = 0;
        for (const double x : l) exponentials += std::exp(x);
        sum += 0.7 * std::log(exponentials) * std::log(exponentials) / static_cast<double>(T);
      }
      return sum;
    };
    std::vector<float> dlogits(logits.size(), 0);
    choice_weights_backward(threads, rule, logits, chosen, dweights, dlogits);
    balance_scores_backward(threads, rule, sequences, logits, factor, dlogits);
    router_z_loss_backward(threads, E, logits, 0.7, dlogits);
    expect_gradient(objective, Row(logits.begin(), logits.end()), Row(dlogits.begin(), dlogits.end()), 1e-5, 3e-6);
  }
}

TEST_F(Router, SumsScoresAndCountsOfEachSequence) {
  for (int round = 0; round < 20; ++round) {
    const auto rule = draw_rule();
    const std::int64_t sequences = upto(4), T = sequences * upto(9), E = rule.experts;
    const auto logits = draw(T * E, 1);
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(T * rule.topk));
    choose_experts(threads, rule, logits, {}, chosen);
    std::vector<float> counts(static_cast<std::size_t>(sequences * E));
    Row sums(counts.size()), expected_sums(counts.size(), 0), expected_counts(counts.size(), 0);
    count_choices(rule, sequences, chosen, counts);
    balance_score_sums(threads, rule, sequences, logits, sums);
    double z = 0;
    for (std::size_t t = 0; t < static_cast<std::size_t>(T); ++t) {
      const auto first = t / static_cast<std::size_t>(T / sequences) * static_cast<std::size_t>(E);
      const auto l = row(logits, t, E);
      const auto s = balance_scores(rule, l);
      for (std::size_t e = 0; e < s.size(); ++e) expected_sums[first + e] += s[e];
      for (std::int64_t k = 0; k < rule.topk; ++k)
        expected_counts[first + static_cast<std::size_t>(
                                    chosen[t * static_cast<std::size_t>(rule.topk) + static_cast<std::size_t>(k)])] +=
            1;
      double exponentials = 0;
      for (const double x : l) exponentials += std::exp(x);
      z += std::log(exponentials) * std::log(exponentials) / static_cast<double>(T);
    }
    for (std::size_t i = 0; i < counts.size(); ++i) {
      EXPECT_EQ(counts[i], expected_counts[i]);
      EXPECT_NEAR(sums[i], expected_sums[i], 1e-12 * static_cast<double>(T));
    }
    EXPECT_NEAR(router_z_loss(threads, E, logits), z, 1e-12 * std::max(1.0, z));
  }
}

// The fixed point is unique up to a factor: rows and columns of d1 C d0 have equal sums there.
TEST_F(Router, SinkhornBalancesTheChoices) {
  const RouterRule rule{4, 1};
  const std::int64_t T = 64;
  auto logits = draw(T * 4, 1);
  for (std::size_t i = 0; i < logits.size(); i += 4) logits[i] += 3;  // a favourite
  std::vector<std::int32_t> plain(64), balanced(64);
  choose_experts(threads, rule, logits, {}, plain);
  choose_by_sinkhorn(rule, logits, balanced);
  const auto most = [](const std::vector<std::int32_t>& chosen) {
    std::vector<int> counts(4, 0);
    for (const auto e : chosen) ++counts[static_cast<std::size_t>(e)];
    return *std::max_element(counts.begin(), counts.end());
  };
  EXPECT_GT(most(plain), 45);
  EXPECT_LT(most(balanced), 36) << "16 on average; with independent choices one draw in a million has more";
}

TEST_F(Router, DoesNotDependOnTheNumberOfThreads) {
  Threads one(1);
  const auto rule = draw_rule();
  const std::int64_t T = 300;
  const auto logits = draw(T * rule.experts, 1), dweights = draw(T * rule.topk, 1);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(T * rule.topk));
  choose_experts(threads, rule, logits, {}, chosen);
  std::vector<float> a(logits.size(), 0), b(logits.size(), 0);
  choice_weights_backward(one, rule, logits, chosen, dweights, a);
  choice_weights_backward(threads, rule, logits, chosen, dweights, b);
  EXPECT_TRUE(same_bits(a, b));
  EXPECT_EQ(router_z_loss(one, rule.experts, logits), router_z_loss(threads, rule.experts, logits));
}

TEST_F(Router, RefusesOtherExtents) {
  const RouterRule rule{4, 2};
  std::vector<float> logits(8), weights(3);
  std::vector<std::int32_t> chosen(4);
  EXPECT_THROW(choice_weights(threads, rule, logits, chosen, weights), ShapeError);
  logits.resize(7);
  EXPECT_THROW(choose_experts(threads, rule, logits, {}, chosen), ShapeError);
  logits.resize(8);
  EXPECT_THROW(choose_experts(threads, {4, 5}, logits, {}, chosen), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
