#include "framework/kernels/linear.h"

#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Values = std::vector<float>;

struct Operands {
  LinearExtents e;
  Values x, w, bias, dy;

  explicit Operands(LinearExtents extents) : e(extents) {
    const auto size = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
    x = random_normal(size(e.rows, e.in), 1);
    w = random_normal(size(e.out, e.in), 2);
    bias = random_normal(size(e.out, 1), 3);
    dy = random_normal(size(e.rows, e.out), 4);
  }
};

/// sum over k < K of a(i, k) b(k, j), in double.
template <class A, class B>
std::vector<double> plain_product(std::int64_t M, std::int64_t N, std::int64_t K, const A& a, const B& b) {
  std::vector<double> c(static_cast<std::size_t>(M * N));
  for (std::int64_t i = 0; i < M; ++i)
    for (std::int64_t k = 0; k < K; ++k)
      for (std::int64_t j = 0; j < N; ++j)
        c[static_cast<std::size_t>(i * N + j)] += double{a[static_cast<std::size_t>(i * K + k)]} * b(k, j);
  return c;
}

std::vector<double> plain_forward(const Operands& o) {
  auto y = plain_product(o.e.rows, o.e.out, o.e.in, o.x,
                         [&](std::int64_t k, std::int64_t j) { return o.w[static_cast<std::size_t>(j * o.e.in + k)]; });
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += o.bias[i % o.bias.size()];
  return y;
}

double plain_gelu(Activation act, double x) {
  if (act == Activation::gelu_tanh) return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

/// Adding K products of normal numbers one after the other in float: the partial sums grow as sqrt(k), each addition
/// errs by 0.3 ulp of its partial sum, together by 1.8e-8 K in the mean square. This is six times that.
double tolerance(std::int64_t K) { return 1.1e-7 * static_cast<double>(K + 8); }

/// One value, tiny, tails of every register tile and of every block along each extent, more than one task, and a sum so
/// long that its factors are packed in pieces.
const std::vector<LinearExtents> odd_extents = {
    {1, 1, 1},      {1, 48, 48},    {1, 771, 97},   {2, 5, 3},      {3, 129, 65},   {4, 16, 1},
    {5, 385, 47},   {7, 49, 50},    {8, 96, 144},   {9, 31, 95},    {13, 400, 17},  {17, 64, 200},
    {31, 33, 7},    {64, 48, 192},  {65, 769, 49},  {97, 101, 103}, {130, 72, 259}, {257, 193, 145},
    {300, 50, 611}, {1030, 24, 70}, {40, 1200, 99}, {90001, 2, 3}};

using Linear = ForEveryIsa;
FOR_EVERY_ISA(Linear);

TEST_P(Linear, ForwardEqualsThePlainLoop) {
  for (const auto e : odd_extents) {
    const Operands o(e);
    const auto y = on_any_threads([&](Threads& threads) {
      Values out(o.dy.size(), NAN);
      linear_forward(threads, e, o.x, o.w, o.bias, out);
      return out;
    });
    EXPECT_CLOSE(y, plain_forward(o), tolerance(e.in)) << e.rows << " x " << e.in << " x " << e.out;
  }
}

TEST_P(Linear, WithoutABiasOnlyTheProductIsLeft) {
  for (const auto e : odd_extents) {
    Operands o(e);
    Threads threads(2);
    Values y(o.dy.size(), NAN);
    linear_forward(threads, e, o.x, o.w, {}, y);
    std::fill(o.bias.begin(), o.bias.end(), 0.0F);
    EXPECT_CLOSE(y, plain_forward(o), tolerance(e.in)) << e.rows << " x " << e.in << " x " << e.out;
  }
}

TEST_P(Linear, AnActivationLeavesTheSumBeforeItAndTheValueAfterIt) {
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf})
    for (const auto e : odd_extents) {
      const Operands o(e);
      const auto both = on_any_threads([&](Threads& threads) {
        Values before(o.dy.size(), NAN), y(o.dy.size(), NAN);
        linear_activation_forward(threads, e, act, o.x, o.w, o.bias, before, y);
        return joined({before, y});
      });
      auto expected = plain_forward(o);
      const auto size = expected.size();
      for (std::size_t i = 0; i < size; ++i) expected.push_back(plain_gelu(act, expected[i]));
      EXPECT_CLOSE(both, expected, 2 * tolerance(e.in)) << e.rows << " x " << e.in << " x " << e.out;
    }
}

TEST_P(Linear, BackwardInputEqualsThePlainLoopAndAddsWhenAsked) {
  for (const auto e : odd_extents) {
    const Operands o(e);
    auto expected = plain_product(e.rows, e.in, e.out, o.dy, [&](std::int64_t k, std::int64_t j) {
      return o.w[static_cast<std::size_t>(k * e.in + j)];
    });
    for (const bool add : {false, true}) {
      const auto dx = on_any_threads([&](Threads& threads) {
        Values out = add ? o.x : Values(o.x.size(), NAN);
        linear_backward_input(threads, e, o.dy, o.w, out, add);
        return out;
      });
      if (add)
        for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += o.x[i];
      EXPECT_CLOSE(dx, expected, tolerance(e.out)) << e.rows << " x " << e.in << " x " << e.out;
    }
  }
}

TEST_P(Linear, BackwardWeightWritesOrAddsToTheGradient) {
  for (const auto e : odd_extents) {
    const Operands o(e);
    Values flipped(o.dy.size());
    for (std::int64_t r = 0; r < e.rows; ++r)
      for (std::int64_t c = 0; c < e.out; ++c)
        flipped[static_cast<std::size_t>(c * e.rows + r)] = o.dy[static_cast<std::size_t>(r * e.out + c)];
    auto expected = plain_product(e.out, e.in, e.rows, flipped, [&](std::int64_t k, std::int64_t j) {
      return o.x[static_cast<std::size_t>(k * e.in + j)];
    });
    for (const bool add : {false, true}) {
      const auto dw = on_any_threads([&](Threads& threads) {
        Values out = add ? o.w : Values(o.w.size(), NAN);
        linear_backward_weight(threads, e, o.dy, o.x, out, add);
        return out;
      });
      for (std::size_t i = 0; add && i < expected.size(); ++i) expected[i] += o.w[i];
      EXPECT_CLOSE(dw, expected, tolerance(e.rows)) << e.rows << " x " << e.in << " x " << e.out << " " << add;
    }
  }
}

TEST_P(Linear, BackwardBiasAddsTheSumOfTheRows) {
  for (const auto e : odd_extents) {
    const Operands o(e);
    std::vector<double> expected(o.bias.begin(), o.bias.end());
    for (std::size_t i = 0; i < o.dy.size(); ++i) expected[i % expected.size()] += o.dy[i];
    const auto dbias = on_any_threads([&](Threads& threads) {
      Values out = o.bias;
      linear_backward_bias(threads, e.rows, e.out, o.dy, out);
      return out;
    });
    EXPECT_CLOSE(dbias, expected, tolerance(e.rows)) << e.rows << " x " << e.out;
  }
}

TEST_P(Linear, LargeProductsEqualThePlainLoopWhereSampled) {
  const LinearExtents e{1024, 256, 4203};  // the packed factor of the weight gradient comes in two pieces
  const Operands o(e);
  Threads threads(2);
  Values y(o.dy.size()), dx(o.x.size()), dw(o.w.size(), 0.0F);
  linear_forward(threads, e, o.x, o.w, o.bias, y);
  linear_backward_input(threads, e, o.dy, o.w, dx, false);
  linear_backward_weight(threads, e, o.dy, o.x, dw, true);
  const auto at = [](const Values& v, std::int64_t row, std::int64_t width, std::int64_t col) {
    return double{v[static_cast<std::size_t>(row * width + col)]};
  };
  std::mt19937 rng(5);
  for (int i = 0; i < 500; ++i) {
    const std::int64_t r = rng() % e.rows, c = rng() % e.in, n = rng() % e.out;
    double forward = o.bias[static_cast<std::size_t>(n)], input = 0, weight = 0;
    for (std::int64_t k = 0; k < e.in; ++k) forward += at(o.x, r, e.in, k) * at(o.w, n, e.in, k);
    for (std::int64_t k = 0; k < e.out; ++k) input += at(o.dy, r, e.out, k) * at(o.w, k, e.in, c);
    for (std::int64_t k = 0; k < e.rows; ++k) weight += at(o.dy, k, e.out, n) * at(o.x, k, e.in, c);
    // The scale of such a sum is sqrt(K), its error in float eps sqrt(K) times a few.
    EXPECT_NEAR(at(y, r, e.out, n), forward, 2e-4);
    EXPECT_NEAR(at(dx, r, e.in, c), input, 4e-4);
    EXPECT_NEAR(at(dw, n, e.in, c), weight, 3e-4);
  }
}

TEST_P(Linear, ActivationsAreAccurateFromOneTailToTheOther) {
  // A product with the one-by-one identity hands any value to the activation untouched.
  Values x;
  for (int i = -12000; i <= 12000; ++i) x.push_back(static_cast<float>(i) * 1e-3F);
  for (const float v : {-3e38F, -1e4F, -90.0F, -40.0F, -0.0F, 1e-30F, 40.0F, 90.0F, 1e4F, 3e38F}) x.push_back(v);
  const LinearExtents e{static_cast<std::int64_t>(x.size()), 1, 1};
  Threads threads(1);
  for (const auto act : {Activation::gelu_tanh, Activation::gelu_erf}) {
    Values before(x.size()), y(x.size());
    linear_activation_forward(threads, e, act, x, Values{1}, {}, before, y);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::fabs(x[i]) < 100 ? plain_gelu(act, x[i]) : std::max(0.0F, x[i]);
      // Four ulp of the value, or of the unit that the two halves cancel from.
      EXPECT_NEAR(y[i], exact,
                  2.5e-7 * std::max(1.0, std::fabs(exact)) * std::max(1.0, std::min(8.0, std::fabs(double{x[i]}))))
          << x[i];
    }
  }
}

TEST_P(Linear, SpansOfAnotherSizeAreRefused) {
  const Operands o({3, 4, 5});
  Threads threads(1);
  Values y(15), dx(12), dw(20), db(5), small(14);
  EXPECT_THROW(linear_forward(threads, o.e, o.x, o.w, o.bias, small), ShapeError);
  EXPECT_THROW(linear_forward(threads, o.e, o.x, dx, o.bias, y), ShapeError);
  EXPECT_THROW(linear_forward(threads, o.e, o.x, o.w, dx, y), ShapeError);
  EXPECT_THROW(linear_activation_forward(threads, o.e, Activation::gelu_tanh, o.x, o.w, o.bias, small, y), ShapeError);
  EXPECT_THROW(linear_backward_input(threads, o.e, small, o.w, dx, false), ShapeError);
  EXPECT_THROW(linear_backward_weight(threads, o.e, o.dy, small, dw, true), ShapeError);
  EXPECT_THROW(linear_backward_bias(threads, 3, 5, o.dy, small), ShapeError);
  try {
    linear_forward(threads, o.e, o.x, o.w, o.bias, small);
  } catch (const ShapeError& error) {
    EXPECT_STREQ(error.what(), "linear_forward: y has 14 values; expected 3 rows of 5");
  }
}

TEST_P(Linear, NothingToDoIsDone) {
  Threads threads(2);
  Values w(12, 1), dw(12, 1), y(3 * 4, NAN), none;
  linear_forward(threads, {0, 3, 4}, none, w, {}, none);
  linear_backward_weight(threads, {0, 3, 4}, none, none, dw, true);
  EXPECT_EQ(dw, w);
  linear_backward_weight(threads, {0, 3, 4}, none, none, dw, false);
  EXPECT_EQ(dw, Values(12, 0));
  linear_forward(threads, {3, 0, 4}, none, none, {}, y);
  EXPECT_EQ(y, Values(12, 0));
}

}  // namespace
}  // namespace tessera::kernels
