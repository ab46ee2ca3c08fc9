// Products with sums in double, against a plain loop.
#include <gtest/gtest.h>

#include "framework/base/error.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "tests/kernels/reference.h"

namespace tessera::kernels {
namespace {

using Values = std::vector<float>;

/// One value, tails of the blocks of 128 x 256, sums in several pieces of 512.
const std::vector<LinearExtents> extents_in_double = {{1, 1, 1},     {3, 5, 2},      {129, 40, 8},  {7, 513, 64},
                                                      {131, 300, 3}, {600, 17, 259}, {257, 1030, 9}};

std::size_t size_of_matrix(std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); }

/// Each result is the sum in double, rounded once: at most half a unit in the last place away, 6e-8 of its size. The
/// sums of OpenBLAS differ from those of the loop by far less.
constexpr double relative_rounding = 6.1e-8;

void expect_rounded(const Values& got, const std::vector<double>& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i], relative_rounding * std::abs(expected[i]) + 1e-12) << what << " " << i;
}

TEST(LinearInDouble, RoundsEachResultOfTheThreeProductsOnce) {
  for (const auto e : extents_in_double) {
    const auto x = random_normal(size_of_matrix(e.rows, e.in), 1), w = random_normal(size_of_matrix(e.out, e.in), 2),
               dy = random_normal(size_of_matrix(e.rows, e.out), 3), dw_before = random_normal(w.size(), 4);
    std::vector<double> y(dy.size()), dx(x.size()), dw(dw_before.begin(), dw_before.end());
    for (std::int64_t r = 0; r < e.rows; ++r)
      for (std::int64_t o = 0; o < e.out; ++o)
        for (std::int64_t i = 0; i < e.in; ++i) {
          const auto at_x = static_cast<std::size_t>(r * e.in + i), at_w = static_cast<std::size_t>(o * e.in + i),
                     at_y = static_cast<std::size_t>(r * e.out + o);
          y[at_y] += double{x[at_x]} * w[at_w];
          dx[at_x] += double{dy[at_y]} * w[at_w];
          dw[at_w] += double{dy[at_y]} * x[at_x];
        }
    auto dx_and_x = dx;
    for (std::size_t i = 0; i < x.size(); ++i) dx_and_x[i] += x[i];
    std::vector<Values> first;
    for (const int count : {1, 2, 3}) {
      Threads threads(count);
      std::vector<Values> got = {Values(y.size()), Values(x.size()), x, dw_before, Values(w.size(), NAN)};
      linear_forward_in_double(threads, e, x, w, got[0]);
      linear_backward_input_in_double(threads, e, dy, w, got[1], false);
      linear_backward_input_in_double(threads, e, dy, w, got[2], true);
      linear_backward_weight_in_double(threads, e, dy, x, got[3], true);
      linear_backward_weight_in_double(threads, e, dy, x, got[4], false);
      if (count == 1) first = got;
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(same_bits(first[i], got[i])) << count << " threads";
    }
    const auto what = text(e.rows, " x ", e.in, " x ", e.out);
    expect_rounded(first[0], y, "y " + what);
    expect_rounded(first[1], dx, "dx " + what);
    expect_rounded(first[2], dx_and_x, "dx + x " + what);
    expect_rounded(first[3], dw, "dw " + what);
    for (std::size_t i = 0; i < dw.size(); ++i) dw[i] -= dw_before[i];
    expect_rounded(first[4], dw, "dw alone " + what);
  }
}

TEST(LinearInDouble, TakesFactorsOf16Bits) {
  const LinearExtents e{33, 700, 5};
  Threads threads(2);
  auto x = random_normal(size_of_matrix(e.rows, e.in), 1), w = random_normal(size_of_matrix(e.out, e.in), 2);
  round_to(threads, DType::bfloat16, x);
  round_to(threads, DType::bfloat16, w);
  std::vector<std::byte> narrow_x(2 * x.size()), narrow_w(2 * w.size());
  narrow(threads, x, MutableElements(narrow_x.data(), x.size(), DType::bfloat16));
  narrow(threads, w, MutableElements(narrow_w.data(), w.size(), DType::bfloat16));
  Values expected(size_of_matrix(e.rows, e.out)), got(expected.size());
  linear_forward_in_double(threads, e, x, w, expected);
  linear_forward_in_double(threads, e, Elements(narrow_x.data(), x.size(), DType::bfloat16),
                           Elements(narrow_w.data(), w.size(), DType::bfloat16), got);
  EXPECT_TRUE(same_bits(expected, got));
}

TEST(LinearInDouble, RefusesOtherSizes) {
  Threads alone(1);
  Values x(6), w(4), y(6);
  EXPECT_THROW(linear_forward_in_double(alone, {3, 2, 2}, x, w, Values(5)), ShapeError);
  EXPECT_THROW(linear_backward_input_in_double(alone, {3, 2, 2}, y, x, x, false), ShapeError);
}

}  // namespace
}  // namespace tessera::kernels
