// NF4: codes of the nearest value, blocks over the flat array, maxima in 8 bits, and values of any range.
#include "framework/kernels/nf4.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "framework/base/error.h"
#include "framework/kernels/linear.h"
#include "tests/drawn_seed.h"
#include "tests/kernels/reference.h"
#include "tests/kernels/typed.h"

namespace tessera::kernels {
namespace {

/// An array in NF4 with its memory.
struct Quantised {
  std::vector<std::uint8_t> codes;
  std::vector<float> maxima;
  NestedMaxima nested;
  std::int64_t size;

  explicit Quantised(std::span<const float> x)
      : codes(static_cast<std::size_t>(nf4_bytes(static_cast<std::int64_t>(x.size())))),
        maxima(static_cast<std::size_t>(nf4_blocks(static_cast<std::int64_t>(x.size())))),
        size(static_cast<std::int64_t>(x.size())) {
    nf4_quantise(x, codes, maxima);
    nested = nf4_nest(maxima);
  }
  std::shared_ptr<const PackedArray> array(bool doubly, DType type = DType::float32) const {
    if (!doubly)
      return nf4_array({.size = size, .codes = codes, .maxima = maxima, .nested_codes = {}, .offset = 0, .type = type});
    return nf4_array({.size = size,
                      .codes = codes,
                      .maxima = nested.maxima,
                      .nested_codes = nested.codes,
                      .offset = nested.offset,
                      .type = type});
  }
  int code(std::size_t i) const { return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15; }
};

std::vector<float> unpacked(const PackedArray& array) {
  std::vector<float> all(static_cast<std::size_t>(array.size()));
  array.unpack(0, all);
  return all;
}

TEST(Nf4, CodesAreThoseOfTheNearestValue) {
  const auto seed = drawn_seed();
  for (const std::size_t size : {1U, 2U, 63U, 64U, 65U, 200U, 6401U}) {
    SCOPED_TRACE(text("seed ", seed, ", ", size, " elements"));
    const auto x = random_normal(size, seed);
    const Quantised q(x);
    for (std::size_t i = 0; i < size; ++i) {
      const double most = q.maxima[i / 64], value = nf4_values()[static_cast<std::size_t>(q.code(i))];
      for (const auto other : nf4_values())
        EXPECT_LE(std::abs(x[i] / most - value), std::abs(x[i] / most - double{other}) + 1e-6);
    }
    if (size % 2 != 0) {
      EXPECT_EQ(q.codes.back() & 15, 7);
    }
  }
}

TEST(Nf4, OfTwoEquallyNearValuesTheSmallerIsTaken) {
  std::vector<float> x = {1};
  for (std::size_t i = 0; i + 1 < 16; ++i) x.push_back((nf4_values()[i] + nf4_values()[i + 1]) / 2);
  const Quantised q(x);
  for (std::size_t i = 0; i + 1 < 16; ++i) EXPECT_EQ(q.code(i + 1), static_cast<int>(i));
}

TEST(Nf4, BlocksOfZerosAndOfSubnormalNumbersAreZeros) {
  std::vector<float> x(192, 0.0F);
  for (std::size_t i = 0; i < 64; ++i) x[i + 64] = 1e-40F, x[i + 128] = i == 3 ? -2.0F : 0.1F;
  const Quantised q(x);
  EXPECT_EQ(q.code(5), 7);
  EXPECT_EQ(q.code(70), 7);
  EXPECT_EQ(q.code(131), 0);
  EXPECT_EQ(unpacked(*q.array(false))[131], -2.0F);
}

TEST(Nf4, AnyRangeHasTheValuesOfTheWhole) {
  const auto seed = drawn_seed();
  SCOPED_TRACE(text("seed ", seed));
  const auto x = random_normal(64 * 300 + 37, seed);
  const Quantised q(x);
  std::mt19937 random(seed);
  for (const bool doubly : {false, true})
    for (const auto type : {DType::float32, DType::bfloat16, DType::float16}) {
      const auto array = q.array(doubly, type);
      const auto all = unpacked(*array);
      const Typed rounded(type, unpacked(*q.array(doubly)));
      for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], rounded.at(static_cast<std::int64_t>(i)));
      for (int drawn = 0; drawn < 200; ++drawn) {
        const auto first = random() % all.size(), count = random() % std::min<std::size_t>(all.size() - first, 300);
        std::vector<float> part(count);
        array->unpack(static_cast<std::int64_t>(first), part);
        EXPECT_TRUE(same_bits(part, std::span(all).subspan(first, count))) << first << ", " << count;
      }
    }
}

TEST(Nf4, MaximaInEightBitsAreNearAndTheirMeanIsExact) {
  const auto values = dynamic_values();
  EXPECT_TRUE(std::is_sorted(values.begin(), values.end()));
  EXPECT_EQ(values[127], 0.0F);
  EXPECT_EQ(values[128], 5.500000384017767e-07F);  // of bitsandbytes 0.50
  EXPECT_EQ(values[0], -0.992968738079071F);
  const auto x = random_normal(64 * 600, drawn_seed());
  const Quantised q(x);
  const auto doubly = unpacked(*q.array(true)), plain = unpacked(*q.array(false));
  EXPECT_EQ(q.nested.maxima.size(), 3U);
  EXPECT_EQ(q.array(false)->bytes(), 64 * 600 / 2 + 4 * 600);
  EXPECT_EQ(q.array(true)->bytes(), 64 * 600 / 2 + 600 + 4 * 3);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(doubly[i], plain[i], 0.02);
  double sum = 0;
  for (const auto one : q.maxima) sum += one;
  EXPECT_NEAR(q.nested.offset, sum / 600, 1e-6);
  const Quantised same(std::vector<float>(128, 3.0F));  // all maxima are equal: nothing is left to code
  EXPECT_EQ(unpacked(*same.array(true))[100], 3.0F);
}

TEST(Nf4, PartsOfAnotherSizeAreRefused) {
  const Quantised q(random_normal(200, 1));
  Nf4Parts parts{.size = 200, .codes = q.codes, .maxima = q.maxima, .nested_codes = {}, .offset = 0};
  EXPECT_NO_THROW(nf4_array(parts));
  parts.size = 202;
  EXPECT_THROW(nf4_array(parts), ConfigError);
  parts.size = 200;
  parts.type = DType::int64;
  EXPECT_THROW(nf4_array(parts), ConfigError);
}

using Nf4Linear = ForEveryIsa;
FOR_EVERY_ISA(Nf4Linear);

/// Columns of a matrix whose rows begin within blocks.
TEST_P(Nf4Linear, GivesTheBitsOfTheUnpackedElements) {
  const LinearExtents e{40, 72, 50};
  constexpr std::int64_t whole = 90, first_column = 11;
  const Quantised q(random_normal(static_cast<std::size_t>(e.out * whole), drawn_seed()));
  const auto all = unpacked(*q.array(true, DType::bfloat16));
  std::vector<float> dense;
  for (std::int64_t row = 0; row < e.out; ++row)
    dense.insert(dense.end(), all.begin() + row * whole + first_column,
                 all.begin() + row * whole + first_column + e.in);
  const StoredMatrix matrix{.width = e.in,
                            .blocks = {{.rows = e.out,
                                        .first = first_column,
                                        .stride = whole,
                                        .plain = {},
                                        .packed = q.array(true, DType::bfloat16)}},
                            .files = {}};
  for (const auto type : {DType::float32, DType::bfloat16}) {
    Typed x(type, random_normal(static_cast<std::size_t>(e.rows * e.in), 2)), w(type, dense);
    const auto product = [&](const Weight& weight) {
      return on_any_threads([&](Threads& threads) {
        std::vector<float> y(static_cast<std::size_t>(e.rows * e.out));
        linear_forward(threads, e, x.elements(), weight, {}, y);
        return y;
      });
    };
    EXPECT_TRUE(same_bits(product({matrix, type}), product(w.elements())));
  }
}

}  // namespace
}  // namespace tessera::kernels
