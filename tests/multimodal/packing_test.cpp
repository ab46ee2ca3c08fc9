#include "framework/multimodal/packing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/listed.h"
#include "tests/multimodal/media_folder.h"

namespace tessera::multimodal {
namespace {

// The algorithm of LLaMA-Factory as its authors describe it: a sorted list of lengths, of which the largest that fits
// is taken.
std::vector<std::vector<std::int64_t>> packed_by_a_list(std::vector<std::int64_t> lengths, std::int64_t capacity) {
  std::sort(lengths.begin(), lengths.end());
  std::vector<std::vector<std::int64_t>> packed;
  while (!lengths.empty()) {
    packed.emplace_back();
    for (auto free = capacity;;) {
      const auto after = std::upper_bound(lengths.begin(), lengths.end(), free);
      if (after == lengths.begin()) break;
      free -= *(after - 1);
      packed.back().push_back(*(after - 1));
      lengths.erase(after - 1);
    }
  }
  return packed;
}

TEST(PackedRows, AreThoseOfASortedListAndHoldEachRowOnce) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 100; ++round) {
    const std::int64_t capacity = 1 + static_cast<std::int64_t>(random() % 60);
    std::vector<std::int64_t> lengths(random() % 40);
    for (auto& length : lengths)
      length = 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(capacity));
    std::vector<std::vector<std::int64_t>> of_lengths;
    std::vector<std::size_t> members;
    for (const auto& row : packed_rows(lengths, capacity)) {
      of_lengths.emplace_back();
      for (const auto member : row) {
        members.push_back(member);
        of_lengths.back().push_back(lengths[member]);
      }
    }
    EXPECT_EQ(of_lengths, packed_by_a_list(lengths, capacity));
    std::sort(members.begin(), members.end());
    std::vector<std::size_t> all(lengths.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    EXPECT_EQ(members, all);
  }
}

TEST(PackedRows, TakeTheLastOfSeveralRowsOfALengthFirst) {
  const std::vector<std::int64_t> lengths = {3, 5, 3, 5};
  EXPECT_EQ(packed_rows(lengths, 8), (std::vector<std::vector<std::size_t>>{{3, 2}, {1, 0}}));
}

TEST(PackingBatches, AreThoseOfContiguousShares) {
  const auto batches = [](std::int64_t records, std::int64_t shares, std::int64_t at_once) {
    return packing_batches(records, {.capacity = 1, .shares = shares, .records_at_once = at_once});
  };
  EXPECT_EQ(batches(7, 1, 3), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 2}));
  EXPECT_EQ(batches(7, 3, 1000), (std::vector<std::int64_t>{0, 0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(batches(7, 2, 3), (std::vector<std::int64_t>{0, 0, 0, 1, 2, 2, 2}));
  EXPECT_EQ(batches(2, 16, 1000), (std::vector<std::int64_t>{0, 1}));
}

class PackedMllm : public MediaFolder {
 protected:
  PackedMllm() {
    write_records("records.json", {record("<image>", {"a.png"}), record("no image"),
                                   record("<image> and <image>", {"b.png", "a.png"}), record("many trees")});
  }
  template <class T>
  static std::vector<T> part(std::span<const T> values, std::int64_t first, std::int64_t count) {
    return {values.begin() + first, values.begin() + first + count};
  }
};

TEST_F(PackedMllm, ARecordIsReadAsIfItWereAlone) {
  const auto alone = std::move(open({})->train);
  const auto packed = std::move(open({{"packing", "true"}, {"neat_packing", "true"}}, 400)->train);
  ASSERT_EQ(packed->samples(), 1);
  const auto all = read(*packed, {0});
  const auto origins = packed->origins(0);
  ASSERT_EQ(origins.size(), 4U);
  std::vector<float> pixels;
  for (const auto& origin : origins) {
    const auto one = read(*alone, {origin.document});
    const auto count = origin.count, first = origin.first;
    ASSERT_EQ(alone->origins(origin.document).at(0).count, count);
    const auto same = [&](auto field, std::int64_t tokens) {
      using T = std::decay_t<decltype(field(all)[0])>;
      EXPECT_EQ(part<T>(field(all), first, tokens), part<T>(field(one), 0, tokens));
    };
    same([](const Batch& b) { return std::span<const std::int32_t>(b.tokens); }, count);
    same([](const Batch& b) { return std::span<const std::int32_t>(b.labels); }, count);  // none crosses records
    for (int axis = 0; axis < 3; ++axis)
      same(
          [&](const Batch& b) {
            return std::span<const std::int32_t>(b.positions)
                .subspan(static_cast<std::size_t>(axis * b.seq_length), static_cast<std::size_t>(b.seq_length));
          },
          count);
    EXPECT_EQ(part<std::int32_t>(std::span<const std::int32_t>(all.document_start), first, count),
              std::vector<std::int32_t>(static_cast<std::size_t>(count), static_cast<std::int32_t>(first)));
    const auto own = one.field<float>("pixel_values");
    pixels.insert(pixels.end(), own.begin(), own.end());
  }
  const auto given = all.field<float>("pixel_values");
  EXPECT_EQ(pixels, listed(given));
}

TEST_F(PackedMllm, TokensSeeTheRecordsBeforeThemWithoutNeatPacking) {
  const auto packed = std::move(open({{"packing", "true"}}, 400)->train);
  const auto all = read(*packed, {0});
  EXPECT_EQ(listed(all.document_start), std::vector<std::int32_t>(all.document_start.size(), 0));
}

TEST_F(PackedMllm, ASampleNeverHasMoreThanItsLengthLessOneToken) {
  const auto packed = std::move(open({{"packing", "true"}}, 60)->train);
  EXPECT_GT(packed->samples(), 1);
  for (std::int64_t i = 0; i < packed->samples(); ++i)
    EXPECT_LE(packed->origins(i).back().first + packed->origins(i).back().count, 59);
}

TEST_F(PackedMllm, AnImageThatCannotBeReadIsRefusedOrItsRecordDropped) {
  write_records("records.json", {record("<image>", {"a.png"}), record("<image>", {"gone.png"})});
  try {
    open({{"packing", "true"}});
    FAIL() << "it is taken";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("gone.png"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("skip_unreadable_images"), std::string::npos) << error.what();
  }
  EXPECT_EQ(open({{"packing", "true"}, {"skip_unreadable_images", "true"}})->train->origins(0).size(), 1U);
}

}  // namespace
}  // namespace tessera::multimodal
