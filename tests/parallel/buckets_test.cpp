#include "framework/parallel/buckets.h"

#include <gtest/gtest.h>

#include <deque>

namespace tessera::parallel {
namespace {

/// Parameters of so many elements; those of `narrow` are of 16 bits, `tied` is shared by two stages.
class BucketsTest : public testing::Test {
 protected:
  nn::FlatParameters layout(const std::vector<std::int64_t>& sizes, const std::vector<std::size_t>& narrow = {},
                            int tied = -1) {
    std::vector<nn::Parameter*> all;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      auto& p = parameters_.emplace_back();
      p.name = text("p", i);
      p.global_shape = Shape{sizes[i]};
      if (std::find(narrow.begin(), narrow.end(), i) != narrow.end()) p.type = DType::bfloat16;
      if (static_cast<int>(i) == tied) p.share(nn::GradientSharers::ends);
      all.push_back(&p);
    }
    return nn::FlatParameters(all);
  }
  std::deque<nn::Parameter> parameters_;
};

TEST_F(BucketsTest, GoFromTheLastParameterToTheFirstAndCoverEachOnce) {
  const auto flat = layout({100, 64, 200, 30, 500});
  for (const std::int64_t elements : {0, 1, 200, 300, 100000}) {
    const auto buckets = make_buckets(flat, elements);
    auto end = flat.elements();
    for (const auto& bucket : buckets) {
      EXPECT_EQ(bucket.elements.first + bucket.elements.count, end);
      end = bucket.elements.first;
    }
    EXPECT_EQ(end, 0);
  }
  EXPECT_EQ(make_buckets(flat, 0).size(), 1u);
  EXPECT_EQ(make_buckets(flat, 1).size(), 5u);
}

TEST_F(BucketsTest, HaveOneTypeEach) {
  const auto buckets = make_buckets(layout({64, 64, 64, 64}, {1, 2}), 0);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].type, DType::bfloat16);
  EXPECT_EQ(buckets[1].elements.count, 128);
}

TEST_F(BucketsTest, ATiedEmbeddingStandsAloneSoThatBothEndsCutItAlike) {
  const auto buckets = make_buckets(layout({64, 640, 64, 64}, {}, 1), 0);
  ASSERT_EQ(buckets.size(), 3u);
  EXPECT_EQ(buckets[1].parameters, 1u);
  EXPECT_EQ(buckets[1].elements.count, 640);
}

TEST_F(BucketsTest, ShardsOfAllMembersCoverEachElementOnceInWholeBlocks) {
  const auto flat = layout({100, 64, 2000, 30, 500, 7}, {0, 4});
  for (const std::int64_t elements : {0, 1, 600})
    for (const int members : {1, 2, 3, 5}) {
      const auto buckets = make_buckets(flat, elements);
      std::vector<int> seen(static_cast<std::size_t>(flat.elements()));
      for (int rank = 0; rank < members; ++rank)
        for (const auto& shard : shards_of(buckets, rank, members)) {
          EXPECT_EQ(shard.first % 64, 0);
          EXPECT_EQ(shard.count % 64, 0);
          for (std::int64_t i = 0; i < shard.count; ++i) ++seen[static_cast<std::size_t>(shard.first + i)];
        }
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), flat.elements()) << members << " members";
    }
}

}  // namespace
}  // namespace tessera::parallel
