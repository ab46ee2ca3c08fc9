#include "framework/kernels/attention.h"

#include "framework/base/error.h"
#include "tests/gradcheck.h"
#include "tests/kernels/attention_cases.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using namespace attention_cases;

using Attention = ForEveryIsa;
FOR_EVERY_ISA(Attention);

void forward_equals_the_plain_loop(const Work& work, const std::vector<float>& got) {
  const Plain plain(work);
  EXPECT_CLOSE(std::span<const float>(got).first(plain.o.size()), plain.o, 3e-6) << work.c;
  EXPECT_CLOSE(std::span<const float>(got).subspan(plain.o.size()), plain.lse, 1e-6) << work.c;
}

void gradients_equal_the_plain_loop(const Case& c, std::span<const float> got, const Plain& plain) {
  EXPECT_CLOSE(got.first(plain.dq.size()), plain.dq, 1e-5) << c;
  EXPECT_CLOSE(got.subspan(plain.dq.size(), plain.dkv.size()), plain.dkv, 1e-5) << c;
  EXPECT_CLOSE(got.subspan(plain.dq.size() + plain.dkv.size()), plain.dsinks, 1e-5) << c;
}

TEST_P(Attention, ForwardEqualsThePlainLoop) {
  for (const auto& c : cases()) {
    const Work work(c);
    forward_equals_the_plain_loop(work, on_any_threads([&](Threads& threads) {
                                    std::vector<float> o, lse;
                                    return work.forward(threads, o, lse);
                                  }));
  }
}

TEST_P(Attention, BackwardEqualsThePlainLoop) {
  for (const auto& c : cases()) {
    const Work work(c);
    const Plain plain(work);  // sums of some 200 terms of size up to 10, rounded one by one
    const auto got = on_any_threads([&](Threads& threads) { return work.backward(threads); });
    gradients_equal_the_plain_loop(c, got, plain);
  }
}

TEST_P(Attention, DroppedProbabilitiesFollowTheirWords) {
  for (const auto& c : dropped()) {
    const Work work(c);
    const Plain plain(work);  // kept terms are up to twice as large, and so is their rounding
    forward_equals_the_plain_loop(work, on_any_threads([&](Threads& threads) {
                                    std::vector<float> o, lse;
                                    return work.forward(threads, o, lse);
                                  }));
    const auto got = on_any_threads([&](Threads& threads) { return work.backward(threads); });
    gradients_equal_the_plain_loop(c, got, plain);
  }
}

TEST_P(Attention, BackwardEqualsCentralDifferences) {
  for (const auto& c : {Case{1, 5, 5, 2, 1, 3, See::causal}, Case{1, 4, 6, 2, 2, 2, See::ragged, 0.3},
                        Case{1, 5, 6, 2, 2, 2, See::scattered, 0.3, 0, 0.8},
                        Case{1, 5, 5, 2, 1, 3, See::causal, 0, 0, 0, Bias::exact, true},
                        Case{2, 6, 6, 2, 2, 2, See::causal, 0.3, 0, 0.8, Bias::rounded, true}}) {
    const Work work(c);
    Threads alone(1);
    const auto claimed = work.backward(alone);
    auto loss = [&](const Doubles& q, const Doubles& kv, const Doubles& sinks) {
      const Plain plain(work, q, kv, sinks);
      double sum = 0;
      for (std::size_t i = 0; i < plain.o.size(); ++i) sum += plain.o[i] * work.d_o[i];
      return sum;
    };
    // what lies between the heads has no gradient and keeps its 55
    auto part = [&](std::size_t first, std::size_t count) {
      Doubles out(claimed.begin() + static_cast<std::ptrdiff_t>(first),
                  claimed.begin() + static_cast<std::ptrdiff_t>(first + count));
      for (auto& g : out) g = g == 55 ? 0 : g;
      return out;
    };
    const Doubles q(work.q.begin(), work.q.end()), kv(work.kv.begin(), work.kv.end());
    const Doubles sinks(work.sinks.begin(), work.sinks.end());
    expect_gradient([&](const Doubles& x) { return loss(x, kv, sinks); }, q, part(0, q.size()), 1e-5, 5e-6);
    expect_gradient([&](const Doubles& x) { return loss(q, x, sinks); }, kv, part(q.size(), kv.size()), 1e-5, 5e-6);
    auto of_sinks = part(q.size() + kv.size(), sinks.size());
    for (auto& g : of_sinks) g -= 0.5;  // what they were added to
    expect_gradient([&](const Doubles& x) { return loss(q, kv, x); }, sinks, of_sinks, 1e-5, 5e-6);
  }
}

TEST_P(Attention, WhatIsNotSeenHasExactlyNoGradientEvenBesideHugeScores) {
  Work work({1, 60, 60, 1, 1, 16, See::causal});
  for (std::int64_t t = 0; t < 60; ++t)
    work.last[static_cast<std::size_t>(t)] = static_cast<std::int32_t>(std::min<std::int64_t>(t, 40));
  for (auto& x : work.q) x *= 50;
  for (auto& x : work.kv) x *= 50;  // invisible scores would overflow an exponential
  Threads alone(1);
  const auto got = work.backward(alone);
  const auto dkv = std::span<const float>(got).subspan(work.q.size());
  for (std::int64_t s = 41; s < 60; ++s)
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(dkv[at(work.e.k, s, 0) + i], 0.0F);
      ASSERT_EQ(dkv[at(work.e.v, s, 0) + i], 0.0F);
    }
  for (const float g : got) ASSERT_TRUE(std::isfinite(g));
}

TEST_P(Attention, ANaNInAVisibleKeyReachesTheOutput) {
  Work work({1, 70, 70, 1, 1, 8, See::causal});
  work.kv[at(work.e.k, 30, 0) + 2] = NAN;
  Threads alone(1);
  std::vector<float> o, lse;
  work.forward(alone, o, lse);
  for (std::size_t t = 0; t < 70; ++t) EXPECT_EQ(std::isnan(o[t * 8]), t >= 30) << t;
}

TEST(AttentionErrors, AnIntervalBeyondTheKeysIsNamed) {
  Work work({1, 4, 4, 1, 1, 4, See::causal});
  work.last[3] = 4;
  Threads alone(1);
  std::vector<float> o, lse;
  EXPECT_THROW(work.forward(alone, o, lse), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
