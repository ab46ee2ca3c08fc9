// Operations in 16 bits.
#include <gtest/gtest.h>

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
#include "framework/autograd/tape.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "tests/autograd/ops_fixture.h"
#include "tests/autograd/weight.h"

namespace tessera::autograd {
namespace {

/// A value or gradient as floats.
std::vector<float> widened(kernels::Threads& threads, const Tensor& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.elements()));
  kernels::widen(threads, tensor, out);
  return out;
}

/// `got` is `expected` but for a dozen roundings to `type` on the way, each half a unit in the last of its 8 or 11
/// bits, in the measure of the largest value.
void expect_rounded(DType type, const std::vector<float>& got, const std::vector<float>& expected, std::size_t which) {
  float largest = 0;
  for (const float v : expected) largest = std::max(largest, std::abs(v));
  const float unit = type == DType::bfloat16 ? 1.0F / 256 : 1.0F / 2048;
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 12 * unit * largest) << which << " " << i;
}

/// And takes no memory of the arena where products multiply floats. Few rows are multiplied without packed panels.
TEST_F(Ops, AnFp32WeightOfA16BitProductIsRoundedToItsBits) {
  constexpr std::int64_t in = 70, out = 50;
  Weight wide({out, in}, 1), narrow({out, in}, 1);
  for (const auto type : {DType::bfloat16, DType::float16}) {
    std::vector<std::byte> rounded(narrow.value.size() * 2);
    narrow.leaf.value = Tensor(std::span<std::byte>(rounded), type, {out, in});
    kernels::narrow(threads, narrow.value, narrow.leaf.value);
    tape.computes_in(type);
    for (const std::int64_t rows : {9, 200}) {
      auto x = normal(rows * in, 3), cotangent = normal(rows * out, 4);
      std::vector<std::vector<float>> results[2];
      for (auto* w : {&wide, &narrow}) {
        auto& own = results[w == &wide ? 0 : 1];
        const auto value = tape.make(type, {1, rows, in}, false);
        kernels::narrow(threads, x, value.value());
        const auto start = tape.input(value.value(), true);
        const auto before = arena.in_use();
        {
          const RoundedWeight factor(tape, w->leaf, type);
          EXPECT_EQ(arena.in_use() > before, w == &wide && !kernels::multiplies_floats(type));
        }
        const auto y = linear(start, w->leaf, nullptr);
        own.push_back(widened(threads, y.value()));
        tape.seed(y, Tensor(std::span<float>(cotangent), y.shape()));
        tape.backward();
        own.push_back(widened(threads, tape.take_grad(start).tensor));
      }
      tape.clear();
      EXPECT_EQ(results[0], results[1]) << name_of(type) << ", " << rows << " rows";
    }
  }
}

/// One layer of everything, from a 16-bit value and a residual of `type`: the same operations in fp32 and in bfloat16
/// agree but for rounding, and every value and gradient between them has the type it should.
TEST_F(Ops, In16BitsEveryOperationAgreesWithFp32ButForRounding) {
  constexpr std::int64_t T = 4, D = 4, row = 3 * D;
  const std::vector<std::int32_t> positions = {0, 1, 2, 3}, first = {0, 0, 0, 0}, last = positions;
  const auto cosine = normal(T * 2, 5), sine = normal(T * 2, 6);
  const std::vector<std::int64_t> heads = {0, 4}, ids = {0};
  const kernels::AttentionExtents e{1,           T, T, 1, 1, D, 0.5, {row, 0, row, D}, {row, D, row}, {row, 2 * D, row},
                                    {D, 0, D, D}};
  const kernels::DropoutMask mask{RandomKey(5, Purpose::hidden_dropout, 3), ids, 0.2, 0};
  Weight gain({6}, 1), bias({6}, 2), qkv({row, 6}, 3), out({6, D}, 4), up({16, 6}, 7), down({6, 8}, 8), bent({6, 6}, 9);
  const std::vector<Weight*> all = {&gain, &bias, &qkv, &out, &up, &down, &bent};
  auto x = normal(T * 6, 10), cotangent = normal(T * 6, 11);
  const auto run = [&](DType type, DType residual) {
    for (auto* w : all) std::fill(w->grad.begin(), w->grad.end(), 0.0F);
    tape.computes_in(type);
    std::vector<std::vector<float>> results;
    {
      auto memory = tape.make(residual, {1, T, 6}, false);
      kernels::narrow(threads, x, memory.value());
      const auto in = tape.input(memory.value(), true);
      auto turned = rotary(linear(layernorm(in, gain.leaf, &bias.leaf, 1e-5, 0), qkv.leaf, nullptr),
                           {4, kernels::RotaryLayout::half, cosine, sine, heads}, positions);
      EXPECT_EQ(turned.value().dtype(), type);
      const auto middle = dropout_add(linear(attention(turned, e, {first, last}, {}), out.leaf, nullptr), in, mask);
      EXPECT_EQ(middle.value().dtype(), residual);
      auto fed = linear(gated(linear(rmsnorm(middle, gain.leaf, 1e-5, 0), up.leaf, nullptr), kernels::Activation::silu),
                        down.leaf, &bias.leaf);
      const auto y =
          dropout_add(linear_activation(fed, bent.leaf, nullptr, kernels::Activation::gelu_tanh), middle, {});
      results.push_back(widened(threads, y.value()));
      tape.seed(y, Tensor(std::span<float>(cotangent), y.shape()));
      tape.backward();
      const auto dx = tape.take_grad(in);
      EXPECT_EQ(dx.tensor.dtype(), residual);
      results.push_back(widened(threads, dx.tensor));
      for (auto* w : all) results.push_back(w->grad);
    }
    tape.clear();
    return results;
  };
  const auto exact = run(DType::float32, DType::float32);
  for (const auto type : {DType::bfloat16, DType::float16})
    for (const auto residual : {type, DType::float32}) {
      const auto rounded = run(type, residual);
      EXPECT_NE(rounded[0], exact[0]);
      for (std::size_t i = 0; i < exact.size(); ++i) expect_rounded(type, rounded[i], exact[i], i);
    }
  EXPECT_EQ(arena.in_use(), 0u);
}

/// How many of the values are no bfloat16 numbers.
std::ptrdiff_t not_bfloat16(std::span<const float> values) {
  return std::count_if(values.begin(), values.end(), [](float v) { return static_cast<float>(bfloat16(v)) != v; });
}

/// With one token whose hidden state is all ones, a row of the weight gradient is the slope of that row: a factor of
/// two products, which in 16 bits is rounded as docs/numerics.md says.
TEST_F(Ops, In16BitsSlopesThatAreFactorsOfProductsAreRounded) {
  Weight w({50, 2}, 1);
  const std::vector<std::int32_t> labels = {7};
  const std::vector<float> mask = {1}, cotangent = normal(50, 2);
  std::vector<float> ones(2, 1.0F);
  const auto gradient_of = [&](DType type, const std::function<void(const Var&)>& use) {
    std::fill(w.grad.begin(), w.grad.end(), 0.0F);
    {
      tape.computes_in(type);
      auto h = tape.make(type, {1, 1, 2}, true);
      kernels::narrow(threads, ones, h.value());
      use(tape.input(h.value(), true));
    }
    tape.clear();
    return w.grad;
  };
  const auto by_loss = [&](const Var& h) {
    vocabulary_loss(h, w.leaf, {labels, mask, 1});
    tape.backward();
  };
  const auto by_activation = [&](const Var& h) {
    const auto y = linear_activation(h, w.leaf, nullptr, kernels::Activation::gelu_tanh);
    auto seed = tape.make(y.value().dtype(), y.shape(), false);
    kernels::narrow(threads, cotangent, seed.value());
    tape.seed(y, seed.value());
    tape.backward();
  };
  for (const auto& use : {std::function<void(const Var&)>(by_loss), std::function<void(const Var&)>(by_activation)}) {
    EXPECT_GT(not_bfloat16(gradient_of(DType::float32, use)), 50);
    EXPECT_EQ(not_bfloat16(gradient_of(DType::bfloat16, use)), 0);
  }
}

}  // namespace
}  // namespace tessera::autograd
