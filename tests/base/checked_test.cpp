#include "framework/base/checked.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace tessera {
namespace {

TEST(CheckedSizes, AreExactOrRefusedByName) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937_64 random(seed);
  const auto any = [&] { return static_cast<std::int64_t>(random() >> (random() % 63)); };
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  int refused = 0;
  for (int round = 0; round < 10000; ++round) {
    const auto a = any(), b = any();
    const auto product = static_cast<__int128>(a) * b, sum = static_cast<__int128>(a) + b;
    for (const auto& [exact, checked] : {std::pair(product, &checked_product), std::pair(sum, &checked_sum)}) {
      if (exact >= std::numeric_limits<std::int64_t>::min() && exact <= most) {
        EXPECT_EQ(checked({{"a", a}, {"b", b}}), static_cast<std::int64_t>(exact));
      } else {
        EXPECT_THROW(checked({{"a", a}, {"b", b}}), ConfigError);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 0);
  try {
    checked_product({{"batch_size", most}, {"ranks", 2}});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "batch_size 9223372036854775807 x ranks 2 does not fit into 64 bits; make one of them smaller");
  }
}

}  // namespace
}  // namespace tessera
