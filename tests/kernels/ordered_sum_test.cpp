#include "framework/kernels/ordered_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "framework/base/error.h"
#include "framework/kernels/cpu.h"

namespace tessera::kernels {
namespace {

float element(std::size_t source, std::size_t i) {
  const auto h = static_cast<std::uint32_t>(i * 2654435761U + source * 40503U);
  if (h % 97 == 0) return std::numeric_limits<float>::infinity();
  if (h % 101 == 0) return std::numeric_limits<float>::quiet_NaN();
  return (static_cast<float>(h % 2001) - 1000.F) * std::ldexp(1.F, static_cast<int>((h >> 16) % 30) - 20);
}

/// Arrays that begin `offset` elements after a line of the cache.
template <class T>
struct Arrays {
  Arrays(std::size_t number, std::size_t count, std::size_t offset) : room(number, std::vector<T>(count + 128)) {
    for (std::size_t k = 0; k < number; ++k) {
      T* begin = room[k].data();
      while (reinterpret_cast<std::uintptr_t>(begin) % 64 != 0) ++begin;
      begin += offset;
      for (std::size_t i = 0; i < count; ++i) begin[i] = static_cast<T>(element(k, i));
      values.push_back(begin);
      bytes.push_back(reinterpret_cast<std::byte*>(begin));
    }
  }
  std::vector<const std::byte*> sources() const { return {bytes.begin(), bytes.end()}; }
  std::vector<std::vector<T>> room;
  std::vector<T*> values;
  std::vector<std::byte*> bytes;
};

/// NaN by NaN, else bit by bit: which NaN comes out of two is the processor's choice.
template <class T>
bool same(T a, T b) {
  if (std::isnan(static_cast<double>(static_cast<float>(a)))) return std::isnan(static_cast<float>(b));
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class T>
class OrderedSum : public testing::Test {};
using Types = testing::Types<float, bfloat16, float16, double>;
TYPED_TEST_SUITE(OrderedSum, Types);

TYPED_TEST(OrderedSum, EqualsThePlainLoopOnEveryInstructionSetAndInEveryOut) {
  using Wide = std::conditional_t<std::is_same_v<TypeParam, double>, double, float>;
  const Isa before = chosen_isa();
  for (const Isa isa : available_isas()) {
    force_isa(isa);
    for (const std::size_t count : {0UL, 1UL, 15UL, 64UL, 65UL, 1000UL, 4099UL})
      for (const std::size_t number : {1UL, 2UL, 3UL, 5UL})
        for (const std::size_t offset : {0UL, 3UL}) {
          Arrays<TypeParam> in(number, count, 0);
          Arrays<TypeParam> out(3, count, offset);
          std::vector<TypeParam> expected(count);
          for (std::size_t i = 0; i < count; ++i) {
            auto sum = static_cast<Wide>(in.values[0][i]);
            for (std::size_t k = 1; k < number; ++k) sum += static_cast<Wide>(in.values[k][i]);
            expected[i] = static_cast<TypeParam>(sum);
          }
          // The last source is an out as well.
          const std::vector<std::byte*> outs = {out.bytes[0], in.bytes.back()}, streams = {out.bytes[1], out.bytes[2]};
          ordered_sum(in.sources(), outs, streams, count, TypeOf<TypeParam>::value);
          for (const TypeParam* y : {out.values[0], out.values[1], out.values[2], in.values.back()})
            for (std::size_t i = 0; i < count; ++i)
              ASSERT_TRUE(same(y[i], expected[i])) << name_of(isa) << " " << count << " elements, element " << i;
        }
  }
  force_isa(before);
}

TEST(OrderedSums, OfIntegersAreExactAndOfBytesRefused) {
  std::vector<std::int64_t> a = {std::int64_t{1} << 60, -5}, b = {1, 7};
  const std::vector<const std::byte*> sources = {reinterpret_cast<std::byte*>(a.data()),
                                                 reinterpret_cast<std::byte*>(b.data())};
  std::byte* const out = reinterpret_cast<std::byte*>(a.data());
  ordered_sum(sources, std::span(&out, 1), {}, 2, DType::int64);
  EXPECT_EQ(a, (std::vector<std::int64_t>{(std::int64_t{1} << 60) + 1, 2}));
  EXPECT_THROW(ordered_sum(sources, std::span(&out, 1), {}, 2, DType::uint8), ShapeError);
}

TEST(OrderedSums, TheGreatestPassesNotANumberOn) {
  std::vector<float> a = {1, NAN, -3, -0.F}, b = {2, 1, NAN, -1};
  const std::vector<const std::byte*> sources = {reinterpret_cast<std::byte*>(a.data()),
                                                 reinterpret_cast<std::byte*>(b.data())};
  std::byte* const out = reinterpret_cast<std::byte*>(b.data());
  greatest(sources, std::span(&out, 1), 4);
  EXPECT_EQ(b[0], 2);
  EXPECT_TRUE(std::isnan(b[1]) && std::isnan(b[2]));
  EXPECT_EQ(b[3], 0);
}

TEST(Copies, MoveEveryByteAndNoOther) {
  std::vector<std::byte> from(5000), to(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const auto copy : {copy_bytes, stream_bytes})
    for (const std::size_t count : {0UL, 1UL, 63UL, 64UL, 255UL, 256UL, 4001UL})
      for (const std::size_t first : {0UL, 1UL, 37UL}) {
        std::fill(to.begin(), to.end(), std::byte{0});
        copy(from.data() + 5, to.data() + first, count);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const bool inside = i >= first && i < first + count;
          ASSERT_EQ(to[i], inside ? from[i - first + 5] : std::byte{0}) << count << " bytes to " << first << ": " << i;
        }
      }
}

}  // namespace
}  // namespace tessera::kernels
