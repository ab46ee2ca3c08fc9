#include "framework/autograd/tape.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/attention.h"
#include "framework/autograd/ops/embedding.h"
#include "framework/autograd/ops/head_norm.h"
#include "framework/autograd/ops/linear.h"
#include "framework/autograd/ops/norm.h"
#include "framework/autograd/ops/recompute.h"
#include "framework/autograd/ops/residual.h"
#include "framework/autograd/ops/router_noise.h"
#include "framework/autograd/ops/row_gate.h"
#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/autograd/ops/whole_norm.h"
#include "framework/kernels/type_conversion.h"
#include "tests/autograd/ops_fixture.h"
#include "tests/autograd/weight.h"

namespace tessera::autograd {
namespace {

TEST_F(Ops, LinearGivesTheGradientsOfInputWeightAndBias) {
  Weight w({4, 5}, 1), b({4}, 2);
  check({2, 3, 5}, {&w, &b}, [&](Tape&, const Var& x) { return linear(x, w.leaf, &b.leaf); });
}

TEST_F(Ops, LinearInDoubleGivesTheGradientsOfInputAndWeight) {
  Weight w({4, 5}, 1);
  check({2, 3, 5}, {&w}, [&](Tape&, const Var& x) { return linear_in_double(x, w.leaf); });
}

TEST_F(Ops, GatedRowsGiveTheGradientsOfTheRowsAndTheirGates) {
  Weight w({4, 5}, 1), gate({1, 5}, 2);
  check({2, 3, 5}, {&w, &gate},
        [&](Tape&, const Var& x) { return gated_rows(linear(x, w.leaf, nullptr), linear(x, gate.leaf, nullptr)); });
  EXPECT_THROW(gated_rows(tape.make({2, 3}, false), tape.make({2, 2}, false)), ShapeError);
  tape.clear();
}

TEST_F(Ops, JitterGivesTheGradientOfItsInputAndAddsToAnother) {
  Weight w({5, 5}, 1);
  const std::vector<std::int64_t> ids = {7, 11};
  const kernels::SampleNoise noise{RandomKey(5, Purpose::router_jitter, 3), ids, 4};
  check({2, 3, 5}, {&w},
        [&](Tape&, const Var& x) { return dropout_add(linear(jittered(x, 0.4, noise), w.leaf, nullptr), x, {}); });
}

TEST_F(Ops, RandomLogitsDoNotDependOnTheLogitsAndPassTheGradientThrough) {
  const std::vector<std::int64_t> ids = {7, 11};
  const kernels::SampleNoise noise{RandomKey(5, Purpose::forced_routing, 3), ids, 0};
  auto a = normal(2 * 3 * 4, 1), b = normal(2 * 3 * 4, 2), seed = normal(2 * 3 * 4, 3);
  {
    const auto in = tape.input(Tensor(std::span<float>(a), {2, 3, 4}), true);
    const auto y = random_logits(in, noise),
               other = random_logits(tape.input(Tensor(std::span<float>(b), {2, 3, 4}), false), noise);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(y.floats()[i], other.floats()[i]);
    EXPECT_NE(y.floats()[0], a[0]);
    tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
    tape.backward();
    const auto grad = tape.take_grad(in);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(grad.tensor.floats()[i], seed[i]);
  }
  tape.clear();
}

TEST_F(Ops, LinearWithActivationGivesTheGradientsOfBoth) {
  for (const auto act : {kernels::Activation::gelu_tanh, kernels::Activation::gelu_erf, kernels::Activation::quick_gelu,
                         kernels::Activation::silu}) {
    Weight w({4, 5}, 1), b({4}, 2);
    check({2, 3, 5}, {&w, &b}, [&](Tape&, const Var& x) { return linear_activation(x, w.leaf, &b.leaf, act); });
  }
}

TEST_F(Ops, NormsGiveTheGradientsOfInputGainAndBias) {
  Weight gain({6}, 1), bias({6}, 2);
  check({2, 2, 6}, {&gain, &bias}, [&](Tape&, const Var& x) { return layernorm(x, gain.leaf, &bias.leaf, 1e-5, 0); });
  Weight other({6}, 3);
  check({2, 2, 6}, {&other}, [&](Tape&, const Var& x) { return rmsnorm(x, other.leaf, 1e-5, 1); });
}

TEST_F(Ops, GatedActivationsGiveTheGradientsOfGateAndUp) {
  for (const auto act : {kernels::Activation::silu, kernels::Activation::gelu_tanh, kernels::Activation::gelu_erf})
    check({2, 3, 8}, {}, [&](Tape&, const Var& x) { return gated(x, act); });
}

TEST_F(Ops, ScalingAndCappingGiveTheGradientOfTheirInput) {
  Weight w({5, 5}, 1), v({5, 5}, 2);
  check({2, 3, 5}, {&w}, [&](Tape&, const Var& x) { return scaled(linear(x, w.leaf, nullptr), 1.7); });
  check({2, 3, 5}, {&v}, [&](Tape&, const Var& x) { return softcapped(linear(x, v.leaf, nullptr), 1.3); });
}

TEST_F(Ops, NormsOfHeadsGiveTheGradientsOfTheProjectionAndOfTheirGains) {
  const std::vector<std::int64_t> queries = {0, 4, 12}, keys = {8};  // what begins at 16 is left alone
  for (const bool centred : {false, true}) {
    Weight q({4}, 1), k({4}, 2), q_bias({4}, 3), k_bias({4}, 4);
    std::vector<Weight*> weights = {&q, &k};
    if (centred) weights.insert(weights.end(), {&q_bias, &k_bias});
    check({2, 3, 19}, weights, [&](Tape&, const Var& x) {
      return head_norm(x, {queries, &q.leaf, centred ? &q_bias.leaf : nullptr},
                       {keys, &k.leaf, centred ? &k_bias.leaf : nullptr}, {4, centred, 1e-2, 1.0F});
    });
  }
}

/// Of a rank that has all heads; tests/parallel/ranks has the others.
TEST_F(Ops, NormsOverAllHeadsGiveTheGradientsOfTheProjectionAndOfTheirGains) {
  const std::vector<std::int64_t> queries = {0, 4, 12}, keys = {8};  // what begins at 16 is left alone
  Weight q({12}, 1), k({4}, 2);
  check({2, 3, 19}, {&q, &k}, [&](Tape&, const Var& x) {
    return whole_norm(x, {queries, 3, true, &q.leaf}, {keys, 1, true, &k.leaf}, {4, 1e-2, 1.0F});
  });
}

/// Each head divided by the root of the mean square of all of its kind, not of its own.
TEST_F(Ops, ANormOverAllHeadsHasTheMeanSquareOfAllHeads) {
  const std::vector<std::int64_t> queries = {0, 4}, keys = {2};
  Weight q({4}, 1), k({2}, 2);
  std::vector<float> x = {3, 0, 1, 1, 0, 1, 7};
  const auto y = whole_norm(tape.input(Tensor(std::span<float>(x), {1, 1, 7}), false), {queries, 2, true, &q.leaf},
                            {keys, 1, true, &k.leaf}, {2, 0, 0});
  const double all = std::sqrt(10.0 / 4);
  for (const auto& [at, channel] : std::vector<std::pair<std::size_t, std::size_t>>{{0, 0}, {1, 1}, {4, 2}, {5, 3}})
    EXPECT_NEAR(y.floats()[at], x[at] / all * static_cast<double>(q.value[channel]), 1e-6) << at;
  EXPECT_NEAR(y.floats()[2], k.value[0], 1e-6);
  EXPECT_EQ(y.floats()[6], 7);
}

/// Two ranks with one query head each and copies of the key head, of which the first counts: what they add up is what
/// the other one noted in a run before.
TEST_F(Ops, NormsOverAllHeadsAddUpWhatTheRanksHave) {
  const std::vector<std::int64_t> both = {0, 2}, first = {0}, key_of_both = {4}, key = {2};
  Weight q({4}, 1), k({2}, 2);
  auto x = normal(3 * 8, 3), dy = normal(3 * 8, 4);
  const auto run = [&](std::vector<float>& values, std::vector<float>& slopes, std::int64_t width,
                       const WholeNorm& queries, const WholeNorm& keys,
                       const std::function<void(std::span<double>)>& add_up) {
    const auto in = tape.input(Tensor(std::span<float>(values), {1, 3, width}), true);
    const auto y = whole_norm(in, queries, keys, {2, 1e-2, 0, add_up});
    std::vector<float> all(y.floats().begin(), y.floats().end());
    tape.seed(y, Tensor(std::span<float>(slopes), y.shape()));
    tape.backward();
    const auto dx = tape.take_grad(in);
    all.insert(all.end(), dx.tensor.floats().begin(), dx.tensor.floats().end());
    return all;
  };
  const auto whole = run(x, dy, 8, {both, 2, true, &q.leaf}, {key_of_both, 1, true, &k.leaf}, {});
  tape.clear();
  std::vector<std::vector<double>> noted[2];
  std::vector<float> results[2];
  std::vector<float> gains[2], key_gains(2);
  for (const bool again : {false, true})
    for (std::size_t rank = 0; rank < 2; ++rank) {
      Weight own_q({2}, 1), own_k({2}, 2);
      std::copy_n(q.value.begin() + static_cast<std::ptrdiff_t>(2 * rank), 2, own_q.value.begin());
      std::vector<float> values, slopes;
      for (std::size_t row = 0; row < 3; ++row)
        for (const auto channel : {2 * rank, 2 * rank + 1, std::size_t{4}, std::size_t{5}, std::size_t{6}}) {
          values.push_back(x[8 * row + channel]);
          const bool shared = channel == 4 || channel == 5;  // each rank has a summand of its gradient
          slopes.push_back(dy[8 * row + channel] * (!shared ? 1.F : rank == 0 ? 0.25F : 0.75F));
        }
      std::size_t call = 0;
      const auto result = run(values, slopes, 5, {first, 2, true, &own_q.leaf}, {key, 1, rank == 0, &own_k.leaf},
                              [&](std::span<double> n) {
                                if (!again) noted[rank].emplace_back(n.begin(), n.end());
                                for (std::size_t i = 0; again && i < n.size(); ++i) n[i] += noted[1 - rank][call][i];
                                ++call;
                              });
      tape.clear();
      results[rank] = result;
      gains[rank] = own_q.grad;
      for (std::size_t i = 0; again && i < 2; ++i) key_gains[i] += own_k.grad[i];
    }
  for (std::size_t row = 0; row < 3; ++row)
    for (std::size_t c = 0; c < 2; ++c) {
      for (std::size_t rank = 0; rank < 2; ++rank) {
        EXPECT_NEAR(results[rank][5 * row + c], whole[8 * row + 2 * rank + c], 1e-6);
        EXPECT_NEAR(results[rank][5 * row + 2 + c], whole[8 * row + 4 + c], 1e-6);
        EXPECT_NEAR(results[rank][15 + 5 * row + c], whole[24 + 8 * row + 2 * rank + c], 1e-6);
      }
      EXPECT_NEAR(results[0][15 + 5 * row + 2 + c] + results[1][15 + 5 * row + 2 + c], whole[24 + 8 * row + 4 + c],
                  1e-6);
    }
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(gains[0][i], q.grad[i], 1e-6);
    EXPECT_NEAR(gains[1][i], q.grad[2 + i], 1e-6);
    EXPECT_NEAR(key_gains[i], k.grad[i], 1e-6);
  }
}

/// As a channel of h that is 1, whose column of the weight is the bias.
TEST_F(Ops, ABiasOfTheOutputLayerIsAddedToTheLogits) {
  Weight w({5, 3}, 1), bias({5}, 2), wide({5, 4}, 3);
  auto h = normal(6, 4), longer = std::vector<float>{h[0], h[1], h[2], 1, h[3], h[4], h[5], 1};
  for (std::size_t v = 0; v < 5; ++v) {
    for (std::size_t c = 0; c < 3; ++c) wide.value[4 * v + c] = w.value[3 * v + c];
    wide.value[4 * v + 3] = bias.value[v];
  }
  const std::vector<std::int32_t> labels = {1, 4};
  const std::vector<float> mask = {1, 0.5F};
  const auto losses = [&](std::vector<float>& values, std::int64_t width, Leaf& weight, Leaf* added) {
    const auto in = tape.input(Tensor(std::span<float>(values), {1, 2, width}), true);
    const auto loss = vocabulary_loss(in, weight, {.labels = labels, .mask = mask, .softcap = 2, .bias = added});
    tape.backward();
    const std::vector<float> all(loss.token_loss.floats().begin(), loss.token_loss.floats().end());
    return all;
  };
  const auto with_bias = losses(h, 3, w.leaf, &bias.leaf);
  tape.clear();
  const auto expected = losses(longer, 4, wide.leaf, nullptr);
  tape.clear();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(with_bias[i], expected[i], 1e-6) << i;
  for (std::size_t v = 0; v < 5; ++v) {
    EXPECT_NEAR(bias.grad[v], wide.grad[4 * v + 3], 1e-6) << v;
    EXPECT_NEAR(w.grad[3 * v], wide.grad[4 * v], 1e-6) << v;
  }
  Weight other({4}, 5);
  const auto in = tape.input(Tensor(std::span<float>(h), {1, 2, 3}), true);
  EXPECT_THROW(vocabulary_loss(in, w.leaf, {.labels = labels, .mask = mask, .bias = &other.leaf}), ShapeError);
}

TEST_F(Ops, WhatIsRecomputedGivesTheSameBitsAndKeepsItsInputAlone) {
  Weight w({8, 5}, 1), v({5, 8}, 2), gain({5}, 3);
  const std::vector<std::int64_t> ids = {7, 11};
  const kernels::DropoutMask mask{RandomKey(5, Purpose::hidden_dropout, 3), ids, 0.4, 0};
  const auto block = [&](const Var& x) {
    auto branch = linear_activation(rmsnorm(x, gain.leaf, 1e-5, 0), w.leaf, nullptr, kernels::Activation::gelu_tanh);
    return dropout_add(linear(branch, v.leaf, nullptr), x, mask);
  };
  auto x = normal(2 * 3 * 5, 9);
  const auto cotangent = normal(2 * 3 * 5, 10);
  std::size_t kept[2];
  const auto run = [&](bool again) {
    std::fill(w.grad.begin(), w.grad.end(), 0.0F), std::fill(v.grad.begin(), v.grad.end(), 0.0F);
    std::vector<float> all;
    {
      const auto in = tape.input(Tensor(std::span<float>(x), {2, 3, 5}), true);
      const auto y = again ? recomputed(in, block) : block(in);
      kept[again ? 1 : 0] = arena.in_use();
      all.assign(y.floats().begin(), y.floats().end());
      auto seed = cotangent;
      tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
      tape.backward();
      const auto dx = tape.take_grad(in);
      all.insert(all.end(), dx.tensor.floats().begin(), dx.tensor.floats().end());
    }
    tape.clear();
    all.insert(all.end(), w.grad.begin(), w.grad.end());
    all.insert(all.end(), v.grad.begin(), v.grad.end());
    return all;
  };
  const auto plain = run(false), again = run(true);
  EXPECT_EQ(plain, again);
  EXPECT_EQ(kept[1], 128u);  // the output's 30 floats
  EXPECT_GT(kept[0], 4 * kept[1]);
  EXPECT_EQ(arena.in_use(), 0u);
}

TEST_F(Ops, ALeafInsideARecomputedPartIsReadyOnce) {
  Weight w({5, 5}, 1), v({5, 5}, 2);
  std::vector<const Leaf*> ready;
  tape.on_grad_ready([&](Leaf& leaf) { ready.push_back(&leaf); });
  auto x = normal(2 * 3 * 5, 9), seed = normal(2 * 3 * 5, 10);
  {
    const auto in = tape.input(Tensor(std::span<float>(x), {2, 3, 5}), true);
    const auto y = linear(recomputed(in, [&](const Var& at) { return linear(at, w.leaf, nullptr); }), v.leaf, nullptr);
    tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
    tape.backward();
    (void)tape.take_grad(in);
  }
  tape.clear();
  EXPECT_EQ(ready, (std::vector<const Leaf*>{&v.leaf, &w.leaf}));
}

TEST_F(Ops, AValueUsedTwiceCollectsBothGradients) {
  Weight w({5, 5}, 1), gain({5}, 2);
  check({1, 3, 5}, {&w, &gain}, [&](Tape&, const Var& x) {
    auto branch = linear(rmsnorm(x, gain.leaf, 1e-5, 0), w.leaf, nullptr);
    auto sum = dropout_add(std::move(branch), x, {});
    auto second = linear(sum, w.leaf, nullptr);
    return dropout_add(std::move(second), sum, {});
  });
}

TEST_F(Ops, DropoutIsTheSameMaskForwardAndBackward) {
  const std::vector<std::int64_t> ids = {7, 11};
  const kernels::DropoutMask mask{RandomKey(5, Purpose::hidden_dropout, 3), ids, 0.4, 0};
  Weight w({5, 5}, 1);
  check({2, 3, 5}, {&w}, [&](Tape&, const Var& x) { return dropout_add(linear(x, w.leaf, nullptr), x, mask); });
}

TEST_F(Ops, AttentionWithRotaryGivesTheGradientOfTheProjection) {
  constexpr std::int64_t T = 4, H = 4, G = 2, D = 4, row = (H + 2 * G) * D, group = 4 * D;
  const std::vector<std::int32_t> positions = {0, 1, 2, 3}, first = {0, 0, 0, 2}, last = {0, 1, 2, 3};
  const auto cosine = normal(T * 2, 5), sine = normal(T * 2, 6);
  const std::vector<std::int64_t> heads = {0, 4, 8, 16, 20, 24};
  const kernels::AttentionExtents e{
      1, T, T, H, G, D, 0.5, {row, 0, group, D}, {row, 2 * D, group}, {row, 3 * D, group}, {H * D, 0, 2 * D, D}};
  Weight w({row, 3}, 1);
  check({1, T, 3}, {&w}, [&](Tape&, const Var& x) {
    auto turned = rotary(linear(x, w.leaf, nullptr), {4, kernels::RotaryLayout::half, cosine, sine, heads}, positions);
    return attention(turned, e, {first, last}, {});
  });
}

TEST_F(Ops, EmbeddingAddsTokenAndPositionGradientsToTheirRows) {
  Weight words({4, 3}, 1), places({2, 3}, 2);
  const std::vector<std::int32_t> tokens = {1, 3, 1, 1}, positions = {0, 1, 0, 1};
  {
    const auto y = embedding(tape, {2, 2}, tokens, words.leaf, positions, &places.leaf);
    EXPECT_FLOAT_EQ(y.floats()[3], words.value[9] + places.value[3]);
    std::vector<float> ones(12, 1.0F);
    tape.seed(y, Tensor(std::span<float>(ones), y.shape()));
    tape.backward();
  }
  EXPECT_EQ(words.grad, (std::vector<float>{0, 0, 0, 3, 3, 3, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(places.grad, (std::vector<float>{2, 2, 2, 2, 2, 2}));
  tape.clear();
}

/// Loss and gradients of the fused projection, against central differences of the loss itself.
TEST_F(Ops, VocabularyLossGivesTheGradientsOfHiddenStateAndWeight) {
  Weight w({7, 3}, 1);
  const std::vector<std::int32_t> labels = {0, 6, -1, 3};
  const std::vector<float> mask = {1, 0.5F, 0, 1};
  auto h = normal(12, 3);
  std::vector<float> dh(12);
  const auto total = [&](Tape& on) {
    return vocabulary_loss(on.input(Tensor(std::span<float>(h), {2, 2, 3}), false), w.leaf, {labels, mask, 1}).total;
  };
  {
    const auto in = tape.input(Tensor(std::span<float>(h), {2, 2, 3}), true);
    const auto result = vocabulary_loss(in, w.leaf, {labels, mask, 1});
    EXPECT_DOUBLE_EQ(result.total.count, 2.5);
    tape.backward();
    const auto grad = tape.take_grad(in);
    std::copy_n(grad.tensor.floats().begin(), 12, dh.begin());
  }
  tape.clear();
  const auto loss = [&] {
    Tape looking(arena, threads, false);
    return total(looking).sum;
  };
  compare(h, dh, loss, "h");
  compare(w.value, w.grad, loss, "the weight");
}

/// Below the lowest trained parameter no operation is recorded.
TEST_F(Ops, OfFrozenParametersAndAnInputWithoutGradientWantNone) {
  Weight weight({3, 3}, 1), shift({3}, 2), trained({3}, 3);
  weight.leaf.bind_grad({});
  shift.leaf.bind_grad({});
  std::vector<float> data = {1, 2, 3};
  const auto wants = [&](bool input, Leaf& bias) {
    const auto x = tape.input(Tensor(std::span(data), {1, 3}), input);
    const auto f = [&](const Var& in) { return add_bias(linear(in, weight.leaf, nullptr), bias); };
    std::string words;
    {
      const auto plain = f(x), again = recomputed(x, f);
      const auto g = [&](const std::array<Var, 1>& in) { return f(in[0]); };
      RecomputedValue<1, decltype(g)> value({x}, g);
      value.discard();
      EXPECT_EQ(value.value().value().floats()[0], plain.floats()[0]);
      for (const auto& y : {plain, again, value.value()}) words += y.wants_grad() ? 'y' : 'n';
    }
    return words;
  };
  EXPECT_EQ(wants(false, shift.leaf), "nnn");
  EXPECT_EQ(wants(true, shift.leaf), "yyy");
  EXPECT_EQ(wants(false, trained.leaf), "yyy");
}

TEST_F(Ops, TheHookFiresOnceForEachLeafWhenItsGradientIsComplete) {
  Weight tied({5, 3}, 1), other({3, 3}, 2);
  tied.leaf.number = 0;
  other.leaf.number = 1;
  std::vector<int> order;
  std::vector<float> seen;
  tape.on_grad_ready([&](Leaf& leaf) {
    order.push_back(leaf.number);
    seen.assign(leaf.grad().floats().begin(), leaf.grad().floats().end());
  });
  const std::vector<std::int32_t> tokens = {1, 2}, labels = {0, 4};
  const std::vector<float> mask = {1, 1};
  {
    const auto x = embedding(tape, {1, 2}, tokens, tied.leaf, {}, nullptr);
    vocabulary_loss(linear(x, other.leaf, nullptr), tied.leaf, {labels, mask, 1});
    tape.backward();
  }
  EXPECT_EQ(order, (std::vector<int>{1, 0}));
  EXPECT_EQ(seen, tied.grad);
  tape.clear();
}

TEST_F(Ops, SeveralTapesOnOneArenaDoNotDisturbEachOther) {
  Weight w({4, 4}, 1);
  auto x = normal(8, 2), seed = normal(8, 3);
  Tape other(arena, threads, true);
  const auto run = [&](Tape& on) {
    return linear(on.input(Tensor(std::span<float>(x), {2, 4}), true), w.leaf, nullptr);
  };
  std::vector<float> alone;
  {
    const auto y = run(tape);
    tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
    tape.backward();
  }
  tape.clear();
  alone = w.grad;
  std::fill(w.grad.begin(), w.grad.end(), 0.0F);
  {
    const auto first = run(tape), second = run(other);
    tape.seed(first, Tensor(std::span<float>(seed), first.shape()));
    tape.backward();  // first in, first out: not the order of a stack
    other.seed(second, Tensor(std::span<float>(seed), second.shape()));
    other.backward();
  }
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_FLOAT_EQ(w.grad[i], 2 * alone[i]);
  tape.clear();
  other.clear();
}

TEST_F(Ops, NothingIsRecordedOrKeptWhereNoGradientIsWanted) {
  Weight w({4, 4}, 1);
  auto x = normal(8, 2);
  Tape looking(arena, threads, false);
  {
    auto y = looking.input(Tensor(std::span<float>(x), {2, 4}), false);
    for (int i = 0; i < 10; ++i) y = linear(y, w.leaf, nullptr);
    EXPECT_LE(arena.in_use(), 2 * 64u);
  }
  EXPECT_EQ(arena.in_use(), 0u);
}

TEST_F(Ops, WrongExtentsAreRefusedWithBothShapes) {
  Weight w({4, 4}, 1);
  auto x = normal(6, 2);
  const auto in = tape.input(Tensor(std::span<float>(x), {2, 3}), true);
  try {
    linear(in, w.leaf, nullptr);
    FAIL();
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "linear: x is [2, 3], the weight [4, 4]; the last extents must be equal");
  }
}

}  // namespace
}  // namespace tessera::autograd
