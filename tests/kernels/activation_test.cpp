#include "framework/kernels/activation.h"

#include <array>

#include "framework/base/error.h"
#include "tests/gradcheck.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Doubles = std::vector<double>;

constexpr std::array every_activation = {Activation::gelu_tanh, Activation::gelu_erf, Activation::quick_gelu,
                                         Activation::silu,      Activation::relu,     Activation::squared_relu};

double value(Activation act, double x) {
  switch (act) {
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case Activation::quick_gelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::squared_relu:
      return x > 0 ? x * x : 0;
    case Activation::none:
      break;
  }
  return NAN;
}

double slope(Activation act, double x) {
  if (act == Activation::relu) return x > 0 ? 1 : 0;  // differences do not know what is meant at a corner
  if (act == Activation::squared_relu) return 2 * std::max(x, 0.0);
  const double step = 1e-5;
  return (value(act, x + step) - value(act, x - step)) / (2 * step);
}

/// A sweep over [-14, 14] with random numbers behind it; an odd size.
std::vector<float> sweep() {
  auto x = random_normal(20001, 1, 0, 2);
  for (std::size_t i = 0; i < 15000; ++i) x[i] = static_cast<float>(static_cast<double>(i) / 15000 * 28 - 14);
  x[15000] = 0;
  x[15001] = -100;
  x[15002] = 100;
  return x;
}

class Activations : public ForEveryIsa {
 protected:
  static void expect_gated_equals_the_plain_loop(Activation act, std::int64_t width, const GateForm& form);
};
FOR_EVERY_ISA(Activations);

TEST_P(Activations, EqualThePlainLoop) {
  const auto x = sweep();
  for (const auto act : every_activation) {
    Doubles expected;
    for (const double v : x) expected.push_back(value(act, v));
    const auto y = on_any_threads([&](Threads& threads) {
      std::vector<float> out(x.size());
      activation_forward(threads, act, x, out);
      return out;
    });
    EXPECT_CLOSE(y, expected, 3e-7);  // one rounding of x, some of the exponential: five units in the last place
    auto in_place = x;
    Threads alone(1);
    activation_forward(alone, act, in_place, in_place);
    EXPECT_TRUE(same_bits(in_place, y));
  }
}

TEST_P(Activations, AreExactlyZeroOrTheirLimitFarOut) {
  const std::vector<float> x = {-100, -60, 0, 60, 100};
  std::vector<float> y(x.size());
  Threads alone(1);
  for (const auto act : every_activation) {
    activation_forward(alone, act, x, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto r = std::max(0.0F, x[i]), expected = act == Activation::squared_relu ? r * r : r;
      // silu at -60 is -5e-25
      EXPECT_NEAR(y[i], expected, act == Activation::silu ? 1e-20 : 0) << static_cast<int>(act) << " at " << x[i];
    }
  }
}

TEST_P(Activations, PassNaNOn) {
  std::vector<float> x(37, 1.0F), y(37);
  x[3] = x[36] = NAN;
  Threads alone(1);
  for (const auto act : every_activation) {
    activation_forward(alone, act, x, y);
    EXPECT_TRUE(std::isnan(y[3]) && std::isnan(y[36]) && !std::isnan(y[4])) << static_cast<int>(act);
  }
}

TEST_P(Activations, BackwardEqualsCentralDifferences) {
  const auto x = sweep(), dy = random_normal(x.size(), 2), old = random_normal(x.size(), 3);
  for (const auto act : every_activation) {
    for (const bool add : {false, true}) {
      Doubles expected;
      for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(dy[i] * slope(act, x[i]) + (add ? old[i] : 0.0F));
      const auto dx = on_any_threads([&](Threads& threads) {
        auto out = old;
        activation_backward(threads, act, dy, x, out, add);
        return out;
      });
      EXPECT_CLOSE(dx, expected, 2e-6);
    }
    auto in_place = dy;
    std::vector<float> dx(x.size());
    Threads alone(1);
    activation_backward(alone, act, dy, x, dx, false);
    activation_backward(alone, act, in_place, x, in_place, false);
    EXPECT_TRUE(same_bits(dx, in_place));
  }
}

void Activations::expect_gated_equals_the_plain_loop(Activation act, std::int64_t width, const GateForm& form) {
  const std::int64_t rows = 131;
  const auto n = static_cast<std::size_t>(width), size = static_cast<std::size_t>(rows) * n;
  const auto x = random_normal(2 * size, 4, 0, 3), dy = random_normal(size, 5), old = random_normal(2 * size, 6);
  Doubles expected(size), gradient(2 * size), sum(2 * size);
  for (std::size_t i = 0; i < size; ++i) {
    const auto gate = i / n * 2 * n + i % n, up = gate + n;
    const double most = form.clamp == 0 ? HUGE_VAL : form.clamp, g = std::min<double>(x[gate], most),
                 u = std::clamp<double>(x[up], -most, most) + form.offset, at = value(act, g);
    expected[i] = at * u;
    gradient[gate] = x[gate] > most ? 0 : dy[i] * slope(act, g) * u;
    gradient[up] = std::abs(x[up]) > most ? 0 : dy[i] * at;
    sum[gate] = old[gate] + gradient[gate];
    sum[up] = old[up] + gradient[up];
  }
  const auto all = on_any_threads([&](Threads& threads) {
    std::vector<float> y(size), dx(2 * size), in_place = x, added = old;
    gated_forward(threads, act, rows, width, x, y, form);
    gated_backward(threads, act, rows, width, dy, x, dx, false, form);
    gated_backward(threads, act, rows, width, dy, in_place, in_place, false, form);
    gated_backward(threads, act, rows, width, dy, x, added, true, form);
    EXPECT_TRUE(same_bits(dx, in_place));
    return joined({y, dx, added});
  });
  const std::span<const float> got = all;
  EXPECT_CLOSE(got.subspan(0, size), expected, 4e-7);
  EXPECT_CLOSE(got.subspan(size, 2 * size), gradient, 2e-6);
  EXPECT_CLOSE(got.subspan(3 * size, 2 * size), sum, 2e-6);
}

TEST_P(Activations, GatedAndItsBackwardEqualThePlainLoop) {
  for (const auto act : every_activation)
    for (const std::int64_t width : {1, 5, 37, 130})
      for (const GateForm form : {GateForm{}, GateForm{2.5, 1}, GateForm{0, -0.5}})
        expect_gated_equals_the_plain_loop(act, width, form);
}

TEST(Activation, SpansThatDoNotFitAreRefused) {
  Threads alone(1);
  std::vector<float> x(6), y(5);
  EXPECT_THROW(activation_forward(alone, Activation::gelu_erf, x, y), ShapeError);
  EXPECT_THROW(gated_forward(alone, Activation::silu, 2, 3, x, y), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
