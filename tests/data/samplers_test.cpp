#include <gtest/gtest.h>

#include <algorithm>

#include "framework/data/dataset.h"
#include "tests/chosen.h"
#include "tests/listed.h"

namespace tessera::data {
namespace {

using Ids = std::vector<std::int32_t>;

TEST(SamplesAsked, AreCountedAsMegatronCountsThem) {
  const auto asked = samples_asked(100, 8, 30, 5);
  EXPECT_EQ(asked.train, 800);
  EXPECT_EQ(asked.valid, (100 / 30 + 1) * 5 * 8);
  EXPECT_EQ(asked.test, 40);
  EXPECT_EQ(samples_asked(100, 8, 0, 5).valid, 0);
  EXPECT_EQ(samples_asked(100, 8, 30, 0).test, 0);
}

class Numbers final : public Dataset {
 public:
  std::int64_t samples() const override { return 40; }
  std::int64_t seq_length() const override { return 2; }
  void read(std::int64_t index, const SampleView& out) const override {
    std::fill(out.tokens.begin(), out.tokens.end(), static_cast<std::int32_t>(index));
  }
};

TEST(ReadBatch, CutsAStepOverTheRanks) {
  const auto order = chosen(samplers(), {}, SamplerParts{40, 3, 2});
  Batch batch(3, 2);
  read_batch(Numbers(), *order, 6, 1, 2, batch);
  EXPECT_EQ(listed(batch.tokens), (Ids{9, 9, 10, 10, 11, 11}));
  EXPECT_EQ(listed(batch.sample_ids), (std::vector<std::int64_t>{9, 10, 11}));
  Batch other(1, 3);
  EXPECT_THROW(read_batch(Numbers(), *order, 0, 0, 1, other), ShapeError);
}

TEST(Samplers, SayWhenTheDatasetIsAtItsEnd) {
  const auto single = chosen(samplers(), {}, SamplerParts{40, 3, 2});
  expect_refused([&] { (void)single->index(40); }, {"sample 40", "has 40", "cyclic"});
  expect_refused(
      [] {
        (void)chosen(samplers(), {{"dataloader_type", "cyclic"}}, SamplerParts{5, 3, 2});
      },
      {"5 samples", "6"});
}

TEST(Cyclic, ReadsEverySampleOnceInAnEpochAndAnotherOrderInTheNext) {
  const auto order = chosen(samplers(), {{"dataloader_type", "cyclic"}}, SamplerParts{43, 2, 2});
  std::vector<std::int64_t> first, second;
  for (std::int64_t i = 0; i < 40; ++i) first.push_back(order->index(i));
  for (std::int64_t i = 40; i < 80; ++i) second.push_back(order->index(i));
  EXPECT_NE(first, second);
  EXPECT_EQ(order->index(3), first[3]);  // back in an epoch before
  for (auto* epoch : {&first, &second}) {
    std::sort(epoch->begin(), epoch->end());
    for (std::int64_t i = 0; i < 40; ++i) EXPECT_EQ((*epoch)[static_cast<std::size_t>(i)], i);
  }
}

// The order of the file, an epoch after the other; what does not fill a batch of all ranks is left out for all of them.
TEST(Cyclic, ReadsInTheOrderOfTheDatasetUnlessItShuffles) {
  for (const auto* sharding : {"true", "false"}) {
    const auto order =
        chosen(samplers(), {{"dataloader_type", "cyclic"}, {"shuffle_epochs", "false"}, {"data_sharding", sharding}},
               SamplerParts{11, 2, 2});
    std::vector<std::int64_t> read;
    for (std::int64_t i = 0; i < 10; ++i) read.push_back(order->index(i));
    EXPECT_EQ(read, *sharding == 't' ? (std::vector<std::int64_t>{0, 1, 4, 5, 2, 3, 6, 7, 0, 1})
                                     : (std::vector<std::int64_t>{0, 2, 1, 3, 4, 6, 5, 7, 0, 2}));
  }
}

}  // namespace
}  // namespace tessera::data
