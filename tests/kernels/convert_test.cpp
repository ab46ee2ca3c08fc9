#include <bit>
#include <limits>

#include "framework/base/error.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Convert = ForEveryIsa;
FOR_EVERY_ISA(Convert);

/// Every one of the 65536 patterns.
template <class Half>
std::vector<Half> every_pattern() {
  std::vector<Half> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

template <class T>
Tensor line(std::vector<T>& values) {
  return {std::span<T>(values), {static_cast<std::int64_t>(values.size())}};
}

template <class Half>
void widens_exactly() {
  auto halves = every_pattern<Half>();
  Threads threads(2);
  std::vector<float> wide(halves.size());
  widen(threads, line(halves), wide);
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const auto expected = static_cast<float>(halves[i]);
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
  }
}

/// Each value of the type, its neighbours in float, and the midpoints between values, where ties go to even.
template <class Half>
std::vector<float> hard_floats() {
  std::vector<float> all;
  for (const auto half : every_pattern<Half>()) {
    const auto here = static_cast<float>(half);
    Half next = half;
    ++next.bits;
    const auto middle = static_cast<float>((static_cast<double>(here) + static_cast<float>(next)) / 2);
    for (const auto v : {here, middle})
      for (const auto w : {v, std::nextafter(v, HUGE_VALF), std::nextafter(v, -HUGE_VALF)}) all.push_back(w);
  }
  return all;
}

template <class Half>
void narrows_to_the_nearest() {
  const auto wide = hard_floats<Half>();
  std::vector<Half> halves(wide.size());
  Threads threads(2);
  narrow(threads, wide, line(halves));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    const Half expected(wide[i]);
    if (std::isnan(wide[i]))
      ASSERT_TRUE(std::isnan(static_cast<float>(halves[i]))) << i;
    else
      ASSERT_EQ(halves[i].bits, expected.bits) << wide[i];
  }
}

TEST_P(Convert, WideningIsExactForEveryPattern) {
  widens_exactly<bfloat16>();
  widens_exactly<float16>();
}

TEST_P(Convert, NarrowingRoundsToTheNearestWithTiesToEven) {
  narrows_to_the_nearest<bfloat16>();
  narrows_to_the_nearest<float16>();
}

TEST_P(Convert, RoundingLeavesWhatFitsAndIsTheSameOnAnyThreads) {
  const auto x = random_normal(100003, 1);
  for (const auto type : {DType::bfloat16, DType::float16}) {
    const auto rounded = on_any_threads([&](Threads& threads) {
      auto y = x;
      round_to(threads, type, y);
      auto again = y;
      round_to(threads, type, again);
      EXPECT_TRUE(same_bits(y, again));
      return y;
    });
    EXPECT_FALSE(same_bits(rounded, x));
    // Half a unit in the last of 8 or 11 bits.
    const double unit = type == DType::bfloat16 ? 1.0 / 256 : 1.0 / 2048;
    EXPECT_CLOSE(rounded, x, 4 * unit);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_LE(std::abs(rounded[i] - x[i]), unit * std::abs(x[i]) + 3e-8);
  }
}

TEST_P(Convert, TheFirstValueThatIsNotFiniteIsFound) {
  Threads threads(2);
  std::vector<bfloat16> x(10001, bfloat16(1.0F));
  EXPECT_EQ(first_not_finite(threads, line(x)), -1);
  x[9000] = bfloat16(std::numeric_limits<float>::infinity());
  x[5003] = bfloat16(std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(first_not_finite(threads, line(x)), 5003);
}

TEST_P(Convert, OtherTypesAndCountsAreRefused) {
  Threads threads(1);
  std::vector<std::int32_t> whole(4);
  std::vector<float> floats(4), few(3);
  EXPECT_THROW(widen(threads, line(whole), floats), ShapeError);
  EXPECT_THROW(narrow(threads, floats, line(whole)), ShapeError);
  EXPECT_THROW(narrow(threads, few, line(floats)), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
