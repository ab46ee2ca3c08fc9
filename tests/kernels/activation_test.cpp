#include "framework/kernels/activation.h"

#include "framework/base/error.h"
#include "tests/gradcheck.h"
#include "tests/kernels/reference.h"

namespace tessera {
namespace {

using Doubles = std::vector<double>;

double gelu(Activation act, double x) {
  if (act == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(Activation act, double x) {
  const double step = 1e-5;
  return (gelu(act, x + step) - gelu(act, x - step)) / (2 * step);
}

double swiglu(double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }

/// A sweep over [-14, 14] with random numbers behind it; an odd size.
std::vector<float> sweep() {
  auto x = random_normal(20001, 1, 0, 2);
  for (std::size_t i = 0; i < 15000; ++i) x[i] = static_cast<float>(static_cast<double>(i) / 15000 * 28 - 14);
  x[15000] = 0;
  x[15001] = -100;
  x[15002] = 100;
  return x;
}

using Activations = ForEveryIsa;
FOR_EVERY_ISA(Activations);

TEST_P(Activations, GeluEqualsThePlainLoop) {
  const auto x = sweep();
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf}) {
    Doubles expected;
    for (const double v : x) expected.push_back(gelu(act, v));
    const auto y = on_any_threads([&](Threads& threads) {
      std::vector<float> out(x.size());
      gelu_forward(threads, act, x, out);
      return out;
    });
    EXPECT_CLOSE(y, expected, 3e-7);  // one rounding of x, some of the exponential: five units in the last place
    auto in_place = x;
    Threads alone(1);
    gelu_forward(alone, act, in_place, in_place);
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TEST_P(Activations, GeluIsExactlyZeroOrItselfFarOut) {
  const std::vector<float> x = {-100, -30, 0, 30, 100};
  std::vector<float> y(x.size());
  Threads alone(1);
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf}) {
    gelu_forward(alone, act, x, y);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], std::max(0.0F, x[i]));
  }
}

TEST_P(Activations, GeluPassesNaNOn) {
  std::vector<float> x(37, 1.0F), y(37);
  x[3] = x[36] = NAN;
  Threads alone(1);
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf}) {
    gelu_forward(alone, act, x, y);
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[36]) && !std::isnan(y[4]));
  }
}

TEST_P(Activations, GeluBackwardEqualsCentralDifferences) {
  const auto x = sweep(), dy = random_normal(x.size(), 2), old = random_normal(x.size(), 3);
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf}) {
    for (const bool add : {false, true}) {
      Doubles expected;
      for (std::size_t i = 0; i < x.size(); ++i)
        expected.push_back(dy[i] * gelu_slope(act, x[i]) + (add ? old[i] : 0.0F));
      const auto dx = on_any_threads([&](Threads& threads) {
        auto out = old;
        gelu_backward(threads, act, dy, x, out, add);
        return out;
      });
      EXPECT_CLOSE(dx, expected, 2e-6);
    }
    auto in_place = dy;
    std::vector<float> dx(x.size());
    Threads alone(1);
    gelu_backward(alone, act, dy, x, dx, false);
    gelu_backward(alone, act, in_place, x, in_place, false);
    EXPECT_TRUE(same_bits(dx, in_place));
  }
}

TEST_P(Activations, SwigluAndItsBackwardEqualThePlainLoop) {
  for (const std::int64_t width : {1, 5, 16, 37, 130}) {
    const std::int64_t rows = 131;
    const auto n = static_cast<std::size_t>(width), size = static_cast<std::size_t>(rows) * n;
    const auto x = random_normal(2 * size, 4, 0, 3), dy = random_normal(size, 5), old = random_normal(2 * size, 6);
    Doubles expected(size), gradient(2 * size), sum(2 * size);
    for (std::size_t i = 0; i < size; ++i) {
      const auto gate = i / n * 2 * n + i % n, up = gate + n;
      expected[i] = swiglu(x[gate], x[up]);
      const double step = 1e-5;
      gradient[gate] = dy[i] * (swiglu(x[gate] + step, x[up]) - swiglu(x[gate] - step, x[up])) / (2 * step);
      gradient[up] = dy[i] * (swiglu(x[gate], x[up] + step) - swiglu(x[gate], x[up] - step)) / (2 * step);
      sum[gate] = old[gate] + gradient[gate];
      sum[up] = old[up] + gradient[up];
    }
    const auto all = on_any_threads([&](Threads& threads) {
      std::vector<float> y(size), dx(2 * size), in_place = x, added = old;
      swiglu_forward(threads, rows, width, x, y);
      swiglu_backward(threads, rows, width, dy, x, dx, false);
      swiglu_backward(threads, rows, width, dy, in_place, in_place, false);
      swiglu_backward(threads, rows, width, dy, x, added, true);
      EXPECT_TRUE(same_bits(dx, in_place));
      return joined({y, dx, added});
    });
    const std::span<const float> got = all;
    EXPECT_CLOSE(got.subspan(0, size), expected, 4e-7);
    EXPECT_CLOSE(got.subspan(size, 2 * size), gradient, 2e-6);
    EXPECT_CLOSE(got.subspan(3 * size, 2 * size), sum, 2e-6);
  }
}

TEST(Activation, SpansThatDoNotFitAreRefused) {
  Threads alone(1);
  std::vector<float> x(6), y(5);
  EXPECT_THROW(gelu_forward(alone, Activation::gelu_erf, x, y), ShapeError);
  EXPECT_THROW(swiglu_forward(alone, 2, 3, x, y), ShapeError);
}

}  // namespace
}  // namespace tessera
