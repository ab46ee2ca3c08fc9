// Mixtures of experts as differentiable operations, against central differences and a loop over tokens.
#include "framework/autograd/ops/experts.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "framework/autograd/ops/activation.h"
#include "framework/autograd/ops/linear.h"
#include "tests/autograd/weight.h"

namespace tessera::autograd {
namespace {

class Experts : public testing::Test {
 protected:
  static constexpr std::int64_t E = 4, K = 2, h = 5, F = 3, T = 6;
  Experts() {
    for (unsigned e = 0; e < E; ++e) {
      fc1_weights.push_back(std::make_unique<Weight>(Shape{2 * F, h}, 10 + e));
      fc2_weights.push_back(std::make_unique<Weight>(Shape{h, F}, 20 + e));
      fc1.push_back(&fc1_weights.back()->leaf);
      fc2.push_back(&fc2_weights.back()->leaf);
    }
  }
  ExpertChoices choices(const Var& weights) const { return {E, K, chosen, weights, {}, {}}; }

  Arena arena;
  kernels::Threads threads{2};
  std::vector<std::unique_ptr<Weight>> fc1_weights, fc2_weights;
  std::vector<Leaf*> fc1, fc2;
  // One expert with one token, one with none, a token with one choice dropped and one with both.
  std::vector<std::int32_t> chosen = {0, 1, 1, -1, 0, 1, -1, -1, 1, 2, 0, 1};
};

TEST_F(Experts, AddUpTheirWeightedNetworksForEachToken) {
  Tape tape(arena, threads, false);
  auto x = normal(T * h, 1), w = normal(T * K, 2);
  const auto in = tape.input(Tensor(std::span<float>(x), {2, 3, h}), false);
  const auto y = experts(in, choices(tape.input(Tensor(std::span<float>(w), {T, K}), false)), {{fc1}, {fc2}}, {});
  ASSERT_EQ(y.shape(), (Shape{2, 3, h}));
  for (std::int64_t t = 0; t < T; ++t) {
    std::vector<float> expected(h, 0);
    for (std::int64_t k = 0; k < K; ++k) {
      const auto e = chosen[static_cast<std::size_t>(t * K + k)];
      if (e < 0) continue;
      const auto token =
          tape.input(Tensor(std::span<float>(x).subspan(static_cast<std::size_t>(t * h), h), {1, h}), false);
      const auto index = static_cast<std::size_t>(e);
      const auto out =
          linear(gated(linear(token, *fc1[index], nullptr), kernels::Activation::silu), *fc2[index], nullptr);
      for (std::size_t i = 0; i < h; ++i) expected[i] += w[static_cast<std::size_t>(t * K + k)] * out.floats()[i];
    }
    for (std::size_t i = 0; i < h; ++i) EXPECT_NEAR(y.floats()[static_cast<std::size_t>(t * h) + i], expected[i], 1e-5);
  }
}

TEST_F(Experts, GiveTheGradientsOfInputWeightsAndChoices) {
  for (const bool on_input : {false, true}) {
    ExpertNetwork network;
    network.weights_on_input = on_input;
    Weight mix({K, h}, 3);
    auto x = normal(T * h, 4);
    const auto cotangent = normal(T * h, 5);
    const auto forward = [&](Tape& tape, bool wants) {
      const auto in = tape.input(Tensor(std::span<float>(x), {2, 3, h}), wants);
      return std::pair(in, experts(in, choices(linear(in, mix.leaf, nullptr)), {{fc1}, {fc2}}, network));
    };
    std::vector<float> dx(x.size());
    for (auto* all : {&fc1_weights, &fc2_weights})
      for (auto& w : *all) std::fill(w->grad.begin(), w->grad.end(), 0.0F);
    {
      Tape tape(arena, threads, true);
      {
        const auto [in, y] = forward(tape, true);
        auto seed = cotangent;
        tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
        tape.backward();
        const auto grad = tape.take_grad(in);
        std::copy_n(grad.tensor.floats().begin(), dx.size(), dx.begin());
      }
      tape.clear();
    }
    const auto loss = [&] {
      Tape tape(arena, threads, false);
      const auto y = forward(tape, false).second;
      double sum = 0;
      for (std::size_t i = 0; i < cotangent.size(); ++i)
        sum += static_cast<double>(cotangent[i]) * static_cast<double>(y.floats()[i]);
      return sum;
    };
    const auto compare = [&](std::span<float> at, std::span<const float> claimed, const char* what) {
      for (std::size_t i = 0; i < at.size(); ++i) {
        const auto here = at[i];
        at[i] = here + 1e-2F;
        const auto up = loss();
        at[i] = here - 1e-2F;
        const auto down = loss();
        at[i] = here;
        const double measured = (up - down) / 2e-2;
        EXPECT_NEAR(claimed[i], measured, 5e-3 * std::max(1.0, std::abs(measured))) << what << " " << i;
      }
    };
    compare(x, dx, "x");
    compare(mix.value, mix.grad, "mix");
    for (std::size_t e = 0; e < E; ++e) {
      compare(fc1_weights[e]->value, fc1_weights[e]->grad, "fc1");
      compare(fc2_weights[e]->value, fc2_weights[e]->grad, "fc2");
    }
    for (const float g : fc1_weights[3]->grad) EXPECT_EQ(g, 0);  // nobody chose it
    EXPECT_EQ(arena.in_use(), 0U);
  }
}

TEST_F(Experts, EveryWeightIsReportedCompleteAlsoOfUnusedExperts) {
  Tape tape(arena, threads, true);
  std::vector<const Leaf*> ready;
  tape.on_grad_ready([&](Leaf& leaf) { ready.push_back(&leaf); });
  auto x = normal(T * h, 4), w = normal(T * K, 2), seed = normal(T * h, 5);
  {
    const auto in = tape.input(Tensor(std::span<float>(x), {T, h}), true);
    const auto y = experts(in, choices(tape.input(Tensor(std::span<float>(w), {T, K}), false)), {{fc1}, {fc2}}, {});
    tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
    tape.backward();
  }
  EXPECT_EQ(ready.size(), static_cast<std::size_t>(2 * E));
  tape.clear();
}

TEST_F(Experts, AuxiliaryLossesReachTheLogitsWithTheirCoefficients) {
  for (const auto balance : {RouterBalance::aux_loss, RouterBalance::seq_aux_loss}) {
    RouterTerms terms;
    terms.rule = {E, K};
    terms.balance = balance;
    terms.aux_coefficient = 0.3;
    terms.z_coefficient = 0.2;
    terms.seed = 1.5;
    terms.training = true;
    terms.sequences = 2;
    auto logits = normal(T * E, 7);
    const auto objective = [&] {
      Tape tape(arena, threads, false);
      const auto found = route(tape.input(Tensor(std::span<float>(logits), {T, E}), false), terms);
      return terms.seed * (terms.aux_coefficient * found.aux_loss + terms.z_coefficient * found.z_loss);
    };
    std::vector<float> claimed(logits.size());
    Tape tape(arena, threads, true);
    {
      const auto in = tape.input(Tensor(std::span<float>(logits), {T, E}), true);
      const auto found = route(in, terms);
      EXPECT_GT(found.aux_loss, 0);
      tape.backward();  // no gradient arrives at the weights: that of the losses alone
      const auto grad = tape.take_grad(in);
      std::copy_n(grad.tensor.floats().begin(), claimed.size(), claimed.begin());
    }
    tape.clear();
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const auto here = logits[i];
      logits[i] = here + 1e-3F;
      const auto up = objective();
      logits[i] = here - 1e-3F;
      const auto down = objective();
      logits[i] = here;
      EXPECT_NEAR(claimed[i], (up - down) / 2e-3, 2e-3) << i;
    }
  }
}

TEST_F(Experts, NothingChangesWhenNoChoiceIsLeft) {
  Tape tape(arena, threads, true);
  std::fill(chosen.begin(), chosen.end(), -1);
  auto x = normal(T * h, 4), w = normal(T * K, 2), seed = normal(T * h, 5);
  {
    const auto in = tape.input(Tensor(std::span<float>(x), {T, h}), true);
    const auto y = experts(in, choices(tape.input(Tensor(std::span<float>(w), {T, K}), true)), {{fc1}, {fc2}}, {});
    for (const float v : y.floats()) EXPECT_EQ(v, 0);
    tape.seed(y, Tensor(std::span<float>(seed), y.shape()));
    tape.backward();
    const auto grad = tape.take_grad(in);
    for (const float v : grad.tensor.floats()) EXPECT_EQ(v, 0);
  }
  tape.clear();
}

TEST_F(Experts, RefuseOtherExtents) {
  Tape tape(arena, threads, false);
  auto x = normal(T * (h + 1), 4), w = normal(T * K, 2);
  const auto weights = tape.input(Tensor(std::span<float>(w), {T, K}), false);
  EXPECT_THROW(
      experts(tape.input(Tensor(std::span<float>(x), {T, h + 1}), false), choices(weights), {{fc1}, {fc2}}, {}),
      ShapeError);
  RouterTerms terms;
  terms.rule = {E, K};
  EXPECT_THROW(route(weights, terms), ShapeError);
}

}  // namespace
}  // namespace tessera::autograd
