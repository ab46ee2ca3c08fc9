// Buffers whose ranges are summed and gathered while their members go on.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <vector>

#include "framework/comm/group_buffer.h"
#include "tests/ranks/ranks.h"
#include "tests/story.h"

namespace tessera::comm {
namespace {

float element(int rank, std::size_t i) {
  const auto h = static_cast<std::uint32_t>(i * 2654435761U + static_cast<unsigned>(rank) * 97531U);
  return (static_cast<float>(h % 30011) - 15005.F) * (static_cast<float>((h >> 16) % 1000) + .1F);
}

float sum_at(std::size_t i) {
  float sum = element(0, i);
  for (int r = 1; r < world().size(); ++r) sum += element(r, i);
  return sum;
}

void fill(GroupBuffer& buffer) {
  for (std::size_t i = 0; i < buffer.floats().size(); ++i) buffer.floats()[i] = element(world().rank(), i);
}

/// Ranges of a buffer of `bytes`, of odd sizes, that cover it.
std::vector<ByteRange> ranges_of(std::size_t bytes) {
  std::vector<ByteRange> ranges;
  std::size_t first = 0;
  for (const std::size_t count : {256UL, 1280UL, 65536UL, 1004UL, 256UL * 1024 * 5 + 4, 8UL}) {
    if (first >= bytes) break;
    ranges.push_back({first, std::min(count, bytes - first)});
    first += (count + GroupBuffer::grain - 1) / GroupBuffer::grain * GroupBuffer::grain;
  }
  if (first < bytes) ranges.push_back({first, bytes - first});
  return ranges;
}

constexpr std::size_t bytes = 3000004;

TEST(Buffers, BeginAsZerosAtAlignedAddresses) {
  const GroupBuffer buffer(world().all(), 1000);
  EXPECT_EQ(buffer.bytes().size(), 1000U);
  EXPECT_EQ(buffer.floats().size(), 250U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.bytes().data()) % 64, 0U);
  for (const float value : buffer.floats()) EXPECT_EQ(value, 0);
}

TEST(Buffers, SharesCoverARangeEvenlyInTheOrderOfRanks) {
  for (const ByteRange range : {ByteRange{0, 0}, {256, 4}, {512, 256 * 7}, {0, 1000004}}) {
    std::size_t next = range.first;
    for (int r = 0; r < 5; ++r) {
      const ByteRange share = GroupBuffer::share(range, r, 5);
      if (share.count == 0) continue;
      EXPECT_EQ(share.first, next);
      EXPECT_EQ(share.first % GroupBuffer::grain, 0U);
      EXPECT_LE(share.count, range.count / 5 + GroupBuffer::grain);
      next += share.count;
    }
    EXPECT_EQ(next, range.first + range.count);
  }
}

TEST(Buffers, SeveralRangesAreSummedEverywhereWhileOthersAreStillFilled) {
  GroupBuffer buffer(world().all(), bytes);
  for (int round = 0; round < 3; ++round) {
    fill(buffer);
    for (const ByteRange range : ranges_of(bytes)) {
      buffer.begin_sum(range, true, "test");
      if ((world().rank() + round) % 2 == 0) buffer.progress();
      if (world().rank() == round) ::usleep(3000);
    }
    buffer.finish();
    for (const ByteRange range : ranges_of(bytes))
      for (std::size_t i = range.first / 4; i < (range.first + range.count) / 4; ++i)
        ASSERT_EQ(buffer.floats()[i], sum_at(i)) << i;
  }
}

TEST(Buffers, ASumThatIsNotWantedEverywhereIsInTheOwnShareAndAGatherBringsTheRest) {
  GroupBuffer buffer(world().all(), bytes);
  for (int round = 0; round < 3; ++round) {
    fill(buffer);
    for (const ByteRange range : ranges_of(bytes)) buffer.begin_sum(range, false, "test");
    buffer.finish();
    for (const ByteRange range : ranges_of(bytes)) {
      const ByteRange own = GroupBuffer::share(range, world().rank(), world().size());
      for (std::size_t i = own.first / 4; i < (own.first + own.count) / 4; ++i)
        ASSERT_EQ(buffer.floats()[i], sum_at(i)) << i;
      for (std::size_t i = own.first / 4; i < (own.first + own.count) / 4; ++i) buffer.floats()[i] *= 2;
    }
    for (const ByteRange range : ranges_of(bytes)) buffer.begin_gather(range, sizeof(float), "test");
    buffer.finish();
    for (const ByteRange range : ranges_of(bytes))
      for (std::size_t i = range.first / 4; i < (range.first + range.count) / 4; ++i)
        ASSERT_EQ(buffer.floats()[i], 2 * sum_at(i)) << i;
  }
}

TEST(Buffers, OtherOperationsMayComeBetween) {
  GroupBuffer first(world().all(), 100004), second(world().all(), 70000);
  fill(first);
  fill(second);
  first.begin_sum({0, 100004}, true, "test");
  float one = 1;
  world().all().all_reduce({&one, 1}, "test");
  second.begin_sum({256, 60000}, true, "test");
  world().all().all_reduce({&one, 1}, "test");
  second.finish();
  first.finish();
  EXPECT_EQ(one, static_cast<float>(world().size() * world().size()));
  for (std::size_t i = 0; i < 25001; ++i) ASSERT_EQ(first.floats()[i], sum_at(i));
  for (std::size_t i = 64; i < 64 + 15000; ++i) ASSERT_EQ(second.floats()[i], sum_at(i));
}

TEST(Buffers, OfDifferentSizesAreAnErrorOnAll) {
  const auto size = static_cast<std::size_t>(world().rank() == 0 ? 512 : 1024);
  EXPECT_TRUE(says(story_of([&] { const GroupBuffer buffer(world().all(), size); }), "another member"));
}

TEST(Buffers, ARangeOutsideOrBesideTheGrainIsAnError) {
  GroupBuffer buffer(world().all(), 1024);
  EXPECT_TRUE(says(story_of([&] { buffer.begin_sum({4, 8}, true, "test"); }), "multiples of 256"));
  EXPECT_TRUE(says(story_of([&] { buffer.begin_gather({768, 512}, sizeof(float), "test"); }), "of 1024"));
}

}  // namespace
}  // namespace tessera::comm
