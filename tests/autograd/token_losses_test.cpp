// The losses of tokens, whose gradients are given after the forward pass.
#include "framework/autograd/ops/vocabulary_loss.h"
#include "framework/kernels/type_conversion.h"
#include "tests/autograd/ops_fixture.h"

namespace tessera::autograd {
namespace {

class TokenLosses : public Ops {};

/// With the seeds that the fused loss would take, the logits of the backward pass are those of the forward pass.
TEST_F(TokenLosses, TakeASeedForEachTokenAndGiveTheBitsOfTheFusedLoss) {
  Weight w({7, 3}, 1);
  const std::vector<std::int32_t> labels = {0, 6, -1, 3};
  const std::vector<float> mask = {1, 0.5F, 0, 1}, weights = {-0.25F, 3, 1, 0};
  auto seeds = weights;
  auto h = normal(12, 3);
  for (const auto type : {DType::float32, DType::bfloat16})
    for (const double cap : {0.0, 2.0}) {
      const auto backward = [&](const std::function<void(const Var& in)>& loss) {
        std::fill(w.grad.begin(), w.grad.end(), 0.0F);
        std::vector<float> all;
        {
          auto narrow = tape.make(type, {2, 2, 3}, false);
          kernels::narrow(threads, h, narrow.value());
          const auto in = tape.input(narrow.value(), true);
          loss(in);
          tape.backward();
          const auto grad = tape.take_grad(in);
          const auto values = tape.read(grad.tensor);
          all.assign(values.span().begin(), values.span().end());
        }
        tape.clear();
        all.insert(all.end(), w.grad.begin(), w.grad.end());
        return all;
      };
      std::vector<float> fused_losses, losses;
      const auto fused = backward([&](const Var& in) {
        const auto result = vocabulary_loss(
            in, w.leaf, {.labels = labels, .mask = mask, .seed = 1, .softcap = cap, .weights = weights});
        fused_losses.assign(result.token_loss.floats().begin(), result.token_loss.floats().end());
      });
      const auto seeded = backward([&](const Var& in) {
        const auto each = token_losses(in, w.leaf, {.labels = labels, .mask = mask, .softcap = cap});
        losses.assign(each.floats().begin(), each.floats().end());
        tape.seed(each, Tensor(std::span<float>(seeds), each.shape()));
      });
      EXPECT_EQ(losses, fused_losses) << cap;
      EXPECT_EQ(seeded, fused) << cap;
      EXPECT_NE(seeded, std::vector<float>(seeded.size())) << cap;
    }
}

TEST_F(TokenLosses, OfAFrozenOutputLayerGiveTheGradientOfTheSeededLosses) {
  Weight w({7, 3}, 1);
  const std::vector<std::int32_t> labels = {0, 6, -1, 3};
  const std::vector<float> weights = {-0.25F, 3, 1, 0};
  auto seeds = weights;
  auto h = normal(12, 3);
  Leaf frozen;
  frozen.value = w.leaf.value;
  const auto gradient = [&](DType type, double cap, Leaf& leaf, bool seeded) {
    std::vector<float> all;
    {
      auto narrow = tape.make(type, {2, 2, 3}, false);
      kernels::narrow(threads, h, narrow.value());
      const auto in = tape.input(narrow.value(), true);
      const auto each = token_losses(in, leaf, {.labels = labels, .mask = {}, .softcap = cap});
      if (seeded) tape.seed(each, Tensor(std::span<float>(seeds), each.shape()));
      tape.backward();
      const auto grad = tape.take_grad(in);
      EXPECT_EQ(grad.empty(), !seeded);
      if (seeded) {
        const auto values = tape.read(grad.tensor);
        all.assign(values.span().begin(), values.span().end());
      }
    }
    tape.clear();
    return all;
  };
  // In fp16 the logits are computed again, as for a layer that is trained.
  constexpr std::pair<DType, double> types[] = {{DType::float32, 1e-6}, {DType::float16, 0.0}, {DType::bfloat16, 0.02}};
  for (const auto& [type, tolerance] : types)
    for (const double cap : {0.0, 2.0}) {
      const auto two = gradient(type, cap, w.leaf, true), one = gradient(type, cap, frozen, true);
      ASSERT_EQ(one.size(), two.size());
      for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], two[i], tolerance) << i << " of " << cap;
      EXPECT_NE(one[0], 0);
      EXPECT_EQ(one[6], 0) << "the token without a label";
      EXPECT_EQ(one[9], 0) << "the token with seed 0";
    }
  gradient(DType::float32, 0, frozen, false);
}

}  // namespace
}  // namespace tessera::autograd
