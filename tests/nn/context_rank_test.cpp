#include "framework/nn/context_rank.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "framework/kernels/sample_noise.h"

namespace tessera::nn {
namespace {

std::vector<std::int64_t> tokens_of(const ContextRank& context, std::int64_t length) {
  std::vector<std::int64_t> all;
  for (std::int64_t t = 0; t < length / context.ranks; ++t) all.push_back(context.index(t, length));
  return all;
}

using Tokens = std::vector<std::int64_t>;

TEST(ContextRank, HasTheChunksOfMegatron) {
  EXPECT_EQ(tokens_of({0, 2}, 8), (Tokens{0, 1, 6, 7}));
  EXPECT_EQ(tokens_of({1, 2}, 8), (Tokens{2, 3, 4, 5}));
  EXPECT_EQ(tokens_of({2, 4}, 8), (Tokens{2, 5}));
  EXPECT_EQ(tokens_of({1, 2, true}, 6), (Tokens{3, 4, 5}));
  EXPECT_EQ(tokens_of({}, 3), (Tokens{0, 1, 2}));
}

TEST(ContextRank, AllRanksTogetherHaveEveryTokenOnceInAscendingOrder) {
  const auto seed = std::random_device()();
  std::mt19937 draw(seed);
  for (int trial = 0; trial < 50; ++trial) {
    const int ranks = 1 + static_cast<int>(draw() % 9);
    const bool contiguous = draw() % 2 == 0;
    const auto length = ContextRank{0, ranks, contiguous}.parts() * static_cast<std::int64_t>(1 + draw() % 5);
    std::vector<int> seen(static_cast<std::size_t>(length));
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t before = -1;
      for (const auto token : tokens_of({rank, ranks, contiguous}, length)) {
        ASSERT_TRUE(token > before && token < length) << "seed " << seed << ", " << ranks << " ranks";
        before = token;
        ++seen[static_cast<std::size_t>(token)];
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), length) << "seed " << seed << ", " << ranks << " ranks";
  }
}

TEST(ContextRank, UnderACausalMaskAllRanksSeeEquallyManyKeys) {
  for (const int ranks : {2, 3, 4, 8}) {
    std::vector<std::int64_t> keys(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      for (const auto token : tokens_of({rank, ranks}, 48)) keys[static_cast<std::size_t>(rank)] += token + 1;
    EXPECT_EQ(std::count(keys.begin(), keys.end(), keys[0]), ranks);
  }
}

TEST(HeldTokens, AMaskOfRowsCountsThemInTheWholeSample) {
  const auto seed = std::random_device()();
  std::mt19937 draw(seed);
  for (int trial = 0; trial < 100; ++trial) {
    ContextRank context;
    context.ranks = 1 + static_cast<int>(draw() % 4);
    context.rank = static_cast<int>(draw() % static_cast<unsigned>(context.ranks));
    context.contiguous = draw() % 3 == 0;
    const std::int64_t tensor = 1 + draw() % 4, part = draw() % static_cast<unsigned>(tensor), width = 1 + draw() % 7;
    const auto length = context.parts() * tensor * static_cast<std::int64_t>(1 + draw() % 3);
    const auto here = length / context.ranks / tensor;
    const auto mask = HeldTokens::of(context, part * here, (part + 1) * here, length)
                          .rows(kernels::SampleNoise{RandomKey(1, Purpose::hidden_dropout, 0), {}}, width);
    for (std::int64_t e = 0; e < here * width; ++e) {
      const auto counted = mask.first_element + e + (e >= mask.gap_at ? mask.gap : 0);
      ASSERT_EQ(counted, context.index(part * here + e / width, length) * width + e % width)
          << "seed " << seed << ", trial " << trial << ", element " << e;
    }
  }
}

}  // namespace
}  // namespace tessera::nn
