#include "framework/checkpoint/element_checks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "tests/drawn_seed.h"
#include "tests/story.h"

namespace tessera::checkpoint {
namespace {

TEST(ElementChecks, FindTheFirstElementThatIsNotFiniteAtAnyPlaceAndAddress) {
  struct Type {
    DType type;
    std::uint64_t largest, infinite;  ///< bits of the largest finite value and of infinity
  };
  const auto seed = drawn_seed();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937_64 random(seed);
  for (const auto& [type, largest, infinite] :
       {Type{DType::float32, 0x7F7FFFFF, 0x7F800000}, Type{DType::bfloat16, 0xFF7F, 0xFF80},
        Type{DType::float16, 0xFBFF, 0x7C01}, Type{DType::float64, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000001}})
    for (int drawn = 0; drawn < 30; ++drawn) {
      const auto size = size_of(type), count = static_cast<std::size_t>(random() % 3000);
      std::vector<std::byte> memory(count * size + 1);
      const auto all = std::span(memory).subspan(drawn % 2);
      const auto put = [&](std::size_t i, std::uint64_t bits) { std::memcpy(all.data() + i * size, &bits, size); };
      for (std::size_t i = 0; i < count; ++i) put(i, largest);
      const Tensor tensor(all.first(count * size), type, Shape{static_cast<std::int64_t>(count)});
      EXPECT_EQ(first_not_finite(tensor), count);
      if (count == 0) continue;
      const auto last = random() % count, first = random() % (last + 1);
      put(last, infinite);
      put(first, infinite);
      EXPECT_EQ(first_not_finite(tensor), first) << name_of(type) << " of " << count;
    }
  std::vector<std::int32_t> integers = {-1, 0x7F800000};
  EXPECT_EQ(first_not_finite(Tensor(std::span(integers), Shape{2})), 2U);
}

// Saved runs have it: another digest of the same weights would be a base that changed.
TEST(ElementChecks, TheDigestStaysWhatItIs) {
  const std::vector<float> values = {0, 1, -2.5F, std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(digest_of(values, 7, 40),
            digest_of(std::span(values).first(1), 7, 40) + digest_of(std::span(values).subspan(1), 7, 41));
  EXPECT_EQ(digest_of(values, 7, 40), 6373433514795109213U) << "computed by a program in Python";
}

}  // namespace
}  // namespace tessera::checkpoint
