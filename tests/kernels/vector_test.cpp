#include "framework/kernels/vector.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "framework/base/error.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Values = std::vector<float>;
using Vector = ForEveryIsa;
FOR_EVERY_ISA(Vector);

/// Empty, shorter than a vector, odd tails, and more than one tile of 65536.
const std::vector<std::size_t> sizes = {0, 1, 7, 16, 63, 64, 65, 1000, 65536, 200003};

TEST_P(Vector, FillCopyAddAndScaleEqualThePlainLoop) {
  for (const auto size : sizes) {
    const auto x = random_normal(size, 1), y = random_normal(size, 2);
    const auto all = on_any_threads([&](Threads& threads) {
      Values filled = y, copied = y, added = y, scaled = y;
      fill(threads, 2.5F, filled);
      copy(threads, x, copied);
      add(threads, x, added);
      scale(threads, 1.7F, scaled);
      return joined({filled, copied, added, scaled});
    });
    Values filled(size, 2.5F), added = y, scaled = y;
    for (std::size_t i = 0; i < size; ++i) added[i] += x[i], scaled[i] *= 1.7F;
    EXPECT_TRUE(same_bits(all, joined({filled, x, added, scaled}))) << size;
  }
}

TEST_P(Vector, SumOfSquaresIsExactToDoubleAndTheSameOnEverySet) {
  for (const auto size : sizes) {
    const auto x = random_normal(size, 3, 1e-3F, 5);
    long double exact = 0;
    for (const float v : x) exact += static_cast<long double>(v) * v;
    Threads one(1), three(3);
    const double sum = sum_of_squares(one, x);
    EXPECT_NEAR(sum, static_cast<double>(exact), 1e-13 * static_cast<double>(exact)) << size;
    EXPECT_EQ(sum, sum_of_squares(three, x)) << size;
    force_isa(Isa::portable);
    EXPECT_EQ(sum, sum_of_squares(one, x)) << size;
    force_isa(GetParam());
  }
}

TEST_P(Vector, NaNAndInfinityPassThroughTheSumOfSquares) {
  Threads threads(2);
  for (const std::size_t at : {std::size_t{0}, std::size_t{70000}, std::size_t{100002}}) {
    auto x = random_normal(100003, 4);
    x[at] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_of_squares(threads, x)));
    x[at] = -std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(sum_of_squares(threads, x)));
    x[at] = 1e30F;  // its square overflows a float
    EXPECT_NEAR(sum_of_squares(threads, x), 1e60, 1e53);
  }
}

TEST_P(Vector, TheSumOfWordsIsThatOfAPlainLoopAndEveryBitChangesIt) {
  for (const auto size : sizes) {
    auto x = random_normal(size, 6);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < size; ++i)
      sum += static_cast<std::uint64_t>(std::bit_cast<std::uint32_t>(x[i])) << (i % 2 == 0 ? 0 : 32);
    EXPECT_EQ(sum_of_words(x), sum) << size;
    for (std::size_t i = 0; i < size; i += 1 + size / 7)
      for (int bit = 0; bit < 32; ++bit) {
        const float before = x[i];
        x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(before) ^ (1U << bit));
        EXPECT_NE(sum_of_words(x), sum) << size << ", element " << i << ", bit " << bit;
        x[i] = before;
      }
  }
}

TEST_P(Vector, ZerosAreCountedWithEitherSign) {
  Threads threads(2);
  for (const auto size : sizes) {
    auto x = random_normal(size, 5);
    std::int64_t zeros = 0;
    for (std::size_t i = 0; i < size; i += 3, ++zeros) x[i] = i % 2 == 0 ? 0.0F : -0.0F;
    EXPECT_EQ(count_zeros(threads, x), zeros) << size;
  }
}

TEST_P(Vector, TheFirstThatIsNotFiniteIsFound) {
  Threads threads(3);
  auto x = random_normal(200003, 6);
  EXPECT_EQ(first_not_finite(threads, x), -1);
  EXPECT_EQ(first_not_finite(threads, std::span<const float>()), -1);
  x[200002] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first_not_finite(threads, x), 200002);
  x[131077] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(first_not_finite(threads, x), 131077);
  x[3] = -std::numeric_limits<float>::infinity();
  x[5] = std::numeric_limits<float>::max();
  EXPECT_EQ(first_not_finite(threads, x), 3);
}

const AdamWFactors factors{3e-2, 0.9, 0.999, 1e-8, 0.1, 0.5, 1 - 0.9 * 0.9, 1 - 0.999 * 0.999};

struct Adam {
  Values p, m, v, grad;
  explicit Adam(std::size_t size)
      : p(random_normal(size, 7)),
        m(random_normal(size, 8, 0, 0.1F)),
        v(random_normal(size, 9)),
        grad(random_normal(size, 10)) {
    for (auto& x : v) x *= x;
  }
};

TEST_P(Vector, AdamWEqualsThePlainLoopInDouble) {
  for (const auto size : sizes) {
    Adam a(size);
    std::vector<double> p(size), m(size), v(size);
    for (std::size_t i = 0; i < size; ++i) {
      const double g = factors.clip * a.grad[i];
      m[i] = factors.beta1 * a.m[i] + (1 - factors.beta1) * g;
      v[i] = factors.beta2 * a.v[i] + (1 - factors.beta2) * g * g;
      const double step = (m[i] / factors.fix1) / (std::sqrt(v[i] / factors.fix2) + factors.eps);
      p[i] = a.p[i] - factors.lr * (step + factors.decay * a.p[i]);
    }
    adamw_update(factors, a.p, a.grad, a.m, a.v);
    // Each line rounds a few times in float: three ulp. The step of an element whose v is tiny is large, with its
    // error.
    EXPECT_CLOSE(a.m, m, 2e-7);
    EXPECT_CLOSE(a.v, v, 2e-7);
    EXPECT_CLOSE(a.p, p, 4e-7);
  }
}

TEST_P(Vector, AdamWKeepsASmallShareOfTheSquareThatFloatWouldLose) {
  Values p{1}, grad{1}, m{0}, v{0};
  adamw_update({1e-3, 0.9, 0.9999, 0, 0, 1, 0.1, 1e-4}, p, grad, m, v);
  EXPECT_NEAR(v[0] / 1e-4, 1, 1e-7);  // 1 - 0.9999F is 1.00017e-4
  EXPECT_NEAR(p[0], 1 - 1e-3, 6e-8);
}

TEST_P(Vector, UpdatesGiveTheSameBitsForAnyCutInBlocksOf64) {
  constexpr std::size_t size = 64 * 9 + 21;
  Adam whole(size), cut(size);
  adamw_update(factors, whole.p, whole.grad, whole.m, whole.v);
  sgd_update({0.1, 0.9, 0.01, 0.5, true}, whole.p, whole.grad, whole.m);
  for (const auto& [first, count] :
       {std::pair<std::size_t, std::size_t>{64 * 5, 64 * 3}, {0, 64}, {64 * 8, 64 + 21}, {64, 64 * 4}}) {
    const auto part = [&, at = first, n = count](Values& v) { return std::span(v).subspan(at, n); };
    adamw_update(factors, part(cut.p), part(cut.grad), part(cut.m), part(cut.v));
    sgd_update({0.1, 0.9, 0.01, 0.5, true}, part(cut.p), part(cut.grad), part(cut.m));
  }
  EXPECT_TRUE(same_bits(whole.p, cut.p));
  EXPECT_TRUE(same_bits(whole.m, cut.m));
  EXPECT_TRUE(same_bits(whole.v, cut.v));
}

TEST_P(Vector, SgdEqualsThePlainLoopInDouble) {
  for (const bool nesterov : {false, true})
    for (const auto size : sizes) {
      const SgdFactors f{0.1, 0.9, 0.01, 0.5, nesterov};
      Adam a(size);
      std::vector<double> p(size), u(size);
      for (std::size_t i = 0; i < size; ++i) {
        const double g = f.clip * a.grad[i] + f.decay * a.p[i];
        u[i] = f.momentum * a.m[i] + g;
        p[i] = a.p[i] - f.lr * (nesterov ? g + f.momentum * u[i] : u[i]);
      }
      sgd_update(f, a.p, a.grad, a.m);
      EXPECT_CLOSE(a.m, u, 2e-7);
      EXPECT_CLOSE(a.p, p, 2e-7);
    }
}

TEST_P(Vector, SpansOfAnotherSizeAreRefused) {
  Threads threads(1);
  Values five(5), four(4);
  EXPECT_THROW(copy(threads, five, four), ShapeError);
  EXPECT_THROW(add(threads, five, four), ShapeError);
  EXPECT_THROW(adamw_update(factors, five, five, four, five), ShapeError);
  EXPECT_THROW(sgd_update({0.1, 0, 0, 1}, five, four, five), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
