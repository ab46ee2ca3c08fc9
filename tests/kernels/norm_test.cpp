#include "framework/kernels/norm.h"

#include <numeric>

#include "framework/base/error.h"
#include "tests/gradcheck.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Doubles = std::vector<double>;

struct Case {
  std::size_t rows, width;
  bool layernorm, bias;
  float offset;
};

/// The plain loop: the row after the norm.
Doubles plain_row(const Case& c, const double* x, const double* gain, const double* bias) {
  const std::size_t n = c.width;
  double mean = 0, squares = 0;
  if (c.layernorm) mean = std::accumulate(x, x + n, 0.0) / static_cast<double>(n);
  for (std::size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double inv = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
  Doubles y(n);
  for (std::size_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * inv * (gain[i] + c.offset) + (c.bias ? bias[i] : 0);
  return y;
}

/// Inputs, and what the kernels make of them on some threads: y, dx, dgain, dbias in one vector.
struct NormWork {
  Case c;
  std::vector<float> x, gain, bias, dy;

  explicit NormWork(const Case& what, float mean = 0.5F, float deviation = 1.5F) : c(what) {
    const auto size = c.rows * c.width;
    x = random_normal(size, 1, mean, deviation);
    gain = random_normal(c.width, 2, 1 - c.offset, 0.3F);
    bias = random_normal(c.width, 3);
    dy = random_normal(size, 4);
  }

  std::vector<float> run(Threads& threads) const {
    std::vector<float> y(x.size()), mean(c.rows), inv(c.rows), dx(x.size()), added(x.size(), 1.0F);
    std::vector<float> dgain(c.width, 2.0F), dbias(c.width, 3.0F), again(c.width), dbias_again(c.width);
    const auto b = c.bias ? std::span<const float>(bias) : std::span<const float>();
    const auto db = c.bias ? std::span<float>(dbias) : std::span<float>();
    const auto db_again = c.bias ? std::span<float>(dbias_again) : std::span<float>();
    auto in_place = dy;
    if (c.layernorm) {
      layernorm_forward(threads, {.x = x,
                                  .gain = gain,
                                  .bias = b,
                                  .eps = 1e-5,
                                  .gain_offset = c.offset,
                                  .y = y,
                                  .mean = mean,
                                  .inv_std = inv});
      layernorm_backward(threads, {.dy = dy,
                                   .x = x,
                                   .gain = gain,
                                   .gain_offset = c.offset,
                                   .mean = mean,
                                   .inv_std = inv,
                                   .dx = dx,
                                   .add = false,
                                   .dgain = dgain,
                                   .dbias = db});
      layernorm_backward(threads, {.dy = dy,
                                   .x = x,
                                   .gain = gain,
                                   .gain_offset = c.offset,
                                   .mean = mean,
                                   .inv_std = inv,
                                   .dx = added,
                                   .add = true,
                                   .dgain = again,
                                   .dbias = db_again});
      layernorm_backward(threads, {.dy = in_place,
                                   .x = x,
                                   .gain = gain,
                                   .gain_offset = c.offset,
                                   .mean = mean,
                                   .inv_std = inv,
                                   .dx = in_place,
                                   .add = false,
                                   .dgain = again,
                                   .dbias = db_again});
    } else {
      rmsnorm_forward(threads, {.x = x, .gain = gain, .eps = 1e-5, .gain_offset = c.offset, .y = y, .inv_rms = inv});
      rmsnorm_backward(threads, {.dy = dy,
                                 .x = x,
                                 .gain = gain,
                                 .gain_offset = c.offset,
                                 .inv_rms = inv,
                                 .dx = dx,
                                 .add = false,
                                 .dgain = dgain});
      rmsnorm_backward(threads, {.dy = dy,
                                 .x = x,
                                 .gain = gain,
                                 .gain_offset = c.offset,
                                 .inv_rms = inv,
                                 .dx = added,
                                 .add = true,
                                 .dgain = again});
      rmsnorm_backward(threads, {.dy = in_place,
                                 .x = x,
                                 .gain = gain,
                                 .gain_offset = c.offset,
                                 .inv_rms = inv,
                                 .dx = in_place,
                                 .add = false,
                                 .dgain = again});
    }
    EXPECT_TRUE(same_bits(dx, in_place));
    for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(added[i], 1 + dx[i], 3e-7 * (1 + std::fabs(dx[i])));
    return joined({y, dx, dgain, dbias});
  }
};

Doubles wide(std::span<const float> x) { return {x.begin(), x.end()}; }

class Norms : public ForEveryIsa {
 protected:
  static void check_forward(const NormWork& work, double tolerance) {
    const auto all = on_any_threads([&](Threads& threads) { return work.run(threads); });
    const auto gain = wide(work.gain), bias = wide(work.bias), x = wide(work.x);
    for (std::size_t r = 0; r < work.c.rows; ++r) {
      const auto expected = plain_row(work.c, x.data() + r * work.c.width, gain.data(), bias.data());
      EXPECT_CLOSE(std::span<const float>(all).subspan(r * work.c.width, work.c.width), expected, tolerance)
          << "row " << r;
    }
  }
};
FOR_EVERY_ISA(Norms);

TEST_P(Norms, ForwardEqualsThePlainLoop) {
  for (const std::size_t width : {1, 3, 16, 47, 200, 1025}) {
    for (const bool layernorm : {false, true}) {
      check_forward(NormWork({37, width, layernorm, layernorm && width % 2 == 1, width > 50 ? 1.0F : 0.0F}), 6e-7);
    }
  }
}

TEST_P(Norms, ALargeMeanDoesNotCancel) {
  // a unit in the last place of x is 6e-5 beside a deviation of 1; the rounded mean in float costs no more than that
  check_forward(NormWork({5, 333, true, true, 0}, 1000.0F, 1.0F), 1e-6);
}

TEST_P(Norms, AConstantRowGivesTheBias) {
  Threads alone(1);
  for (const float value : {0.25F, 0.1F, -3e5F}) {
    const std::vector<float> x(100, value), gain(100, 2.0F), bias(100, 0.75F);
    std::vector<float> y(100), mean(1), inv(1);
    layernorm_forward(
        alone,
        {.x = x, .gain = gain, .bias = bias, .eps = 1e-5, .gain_offset = 0, .y = y, .mean = mean, .inv_std = inv});
    EXPECT_CLOSE(y, Doubles(100, 0.75), 1e-7) << value;
  }
}

TEST_P(Norms, BackwardEqualsCentralDifferences) {
  for (const auto& c : {Case{3, 7, true, true, 0}, Case{2, 37, true, false, 1}, Case{3, 19, false, false, 0},
                        Case{2, 40, false, false, 1}}) {
    const NormWork work(c);
    const auto all = on_any_threads([&](Threads& threads) { return work.run(threads); });
    const std::size_t n = c.width, size = c.rows * n;
    auto loss = [&](const Doubles& x, const Doubles& gain, const Doubles& bias) {
      double sum = 0;
      for (std::size_t r = 0; r < c.rows; ++r) {
        const auto y = plain_row(c, x.data() + r * n, gain.data(), bias.data());
        for (std::size_t i = 0; i < n; ++i) sum += y[i] * work.dy[r * n + i];
      }
      return sum;
    };
    const auto x = wide(work.x), gain = wide(work.gain), bias = wide(work.bias);
    const std::span<const float> got = all;
    auto less = [](std::span<const float> values, double what) {
      Doubles out;
      for (const double v : values) out.push_back(v - what);
      return out;
    };
    // float results: their rounding, not the differences, sets the tolerance
    expect_gradient([&](const Doubles& at) { return loss(at, gain, bias); }, x, wide(got.subspan(size, size)), 1e-5,
                    5e-6);
    expect_gradient([&](const Doubles& at) { return loss(x, at, bias); }, gain, less(got.subspan(2 * size, n), 2), 1e-5,
                    5e-6);
    if (c.bias)
      expect_gradient([&](const Doubles& at) { return loss(x, gain, at); }, bias, less(got.subspan(2 * size + n, n), 3),
                      1e-5, 5e-6);
  }
}

TEST_P(Norms, GainGradientsOfManyRowsAreSummedTheSameOnAnyThreads) {
  const NormWork work({3001, 33, true, true, 0});
  const auto all = on_any_threads([&](Threads& threads) { return work.run(threads); });
  Doubles expected(33, 3.0);
  for (std::size_t i = 0; i < work.dy.size(); ++i) expected[i % 33] += work.dy[i];
  // partial sums of size 10, rounded in float some 50 times each: 3e-6 of noise in the sum of 64 of them
  EXPECT_CLOSE(std::span<const float>(all).subspan(2 * work.x.size() + 33), expected, 1.5e-5);
}

TEST(Norm, SpansThatDoNotFitAreRefused) {
  Threads alone(1);
  std::vector<float> x(6), gain(4), y(6), inv(2);
  EXPECT_THROW(rmsnorm_forward(alone, {.x = x, .gain = gain, .eps = 1e-5, .gain_offset = 0, .y = y, .inv_rms = inv}),
               ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
