// Every operation against serial computation of what all ranks hold.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "framework/comm/group_buffer.h"
#include "tests/ranks/ranks.h"

namespace tessera::comm {
namespace {

/// Element i of rank r: of both signs and many magnitudes, so that sums depend on their order.
float element(int rank, std::size_t i) {
  const auto h =
      static_cast<std::uint32_t>((i * 2654435761U) ^ (static_cast<unsigned>(rank) * 40503U + 17U) * 2246822519U);
  return (static_cast<float>(h % 20001) - 10000.F) * std::ldexp(1.F, static_cast<int>((h >> 16) % 24) - 12);
}

template <class T>
std::vector<T> values_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>(element(rank, i));
  return values;
}

/// In the order of ranks, in float (double for doubles), rounded once.
template <class T>
std::vector<T> sum_of(const Communicator& group, std::size_t count) {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<T> sums(count);
  std::vector<std::vector<T>> all;
  for (int r = 0; r < group.size(); ++r)
    all.push_back(values_of<T>(group.world_ranks()[static_cast<std::size_t>(r)], count));
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum = static_cast<Wide>(all[0][i]);
    for (std::size_t r = 1; r < all.size(); ++r) sum += static_cast<Wide>(all[r][i]);
    sums[i] = static_cast<T>(sum);
  }
  return sums;
}

template <class T>
std::span<std::byte> bytes(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

const std::vector<std::size_t> sizes = {0, 1, 3, 63, 64, 65, 1000, 4097, 70001, 200003};

template <class T>
class Sums : public testing::Test {};
using Types = testing::Types<float, bfloat16, float16, double>;
TYPED_TEST_SUITE(Sums, Types);

TYPED_TEST(Sums, AllReduceAddsInTheOrderOfRanksAndRoundsOnce) {
  for (const std::size_t count : sizes) {
    auto values = values_of<TypeParam>(world().rank(), count);
    world().all().all_reduce(bytes(values), TypeOf<TypeParam>::value, "test");
    EXPECT_TRUE(same(values, sum_of<TypeParam>(world().all(), count))) << count;
  }
}

TYPED_TEST(Sums, ReduceScatterGivesEachMemberTheSumOfItsPart) {
  for (const std::size_t part : sizes) {
    const std::size_t count = part * static_cast<std::size_t>(world().size());
    auto values = values_of<TypeParam>(world().rank(), count);
    std::vector<TypeParam> mine(part);
    world().all().reduce_scatter(bytes(values), bytes(mine), TypeOf<TypeParam>::value, "test");
    const auto sums = sum_of<TypeParam>(world().all(), count);
    const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(part) * world().rank();
    EXPECT_TRUE(same(mine, {begin, begin + static_cast<std::ptrdiff_t>(part)})) << part;
    EXPECT_TRUE(same(values, values_of<TypeParam>(world().rank(), count))) << "the input changed";
  }
}

TEST(Operations, ARanksOrderOfSummingIsSeenInTheResult) {
  // (1e8 - 1e8) + 1 = 1 in this order; 1e8 + (-1e8 + 1) = 0 in another.
  float value = world().rank() == 0 ? 1e8F : world().rank() == 1 ? -1e8F : 1.F;
  world().all().all_reduce({&value, 1}, "test");
  EXPECT_EQ(value, static_cast<float>(world().size() - 2));
}

TEST(Operations, TheGreatestOfAllAndNotANumberWhenOneIs) {
  for (const std::size_t count : sizes) {
    auto values = values_of<float>(world().rank(), count), expected = values_of<float>(0, count);
    for (int r = 1; r < world().size(); ++r)
      for (std::size_t i = 0; i < count; ++i) expected[i] = std::max(expected[i], element(r, i));
    world().all().all_reduce_max(values, "test");
    EXPECT_EQ(values, expected);
  }
  float value = world().rank() == 1 ? NAN : 5.F;
  world().all().all_reduce_max({&value, 1}, "test");
  EXPECT_TRUE(std::isnan(value));
}

TEST(Operations, AllGatherJoinsTheParts) {
  for (const std::size_t part : sizes) {
    const auto mine = values_of<float>(world().rank(), part);
    std::vector<float> all(part * static_cast<std::size_t>(world().size())), expected;
    for (int r = 0; r < world().size(); ++r)
      for (const float value : values_of<float>(r, part)) expected.push_back(value);
    world().all().all_gather(std::as_bytes(std::span(mine)), bytes(all), "test");
    EXPECT_TRUE(same(all, expected)) << part;
    // In place.
    std::fill(all.begin(), all.end(), 0.F);
    const auto own = std::span(all).subspan(part * static_cast<std::size_t>(world().rank()), part);
    std::copy(mine.begin(), mine.end(), own.begin());
    world().all().all_gather(std::as_bytes(own), bytes(all), "test");
    EXPECT_TRUE(same(all, expected)) << part;
  }
}

TEST(Operations, BroadcastGivesTheRootsValues) {
  for (const std::size_t count : sizes)
    for (int root = 0; root < world().size(); ++root) {
      auto values = values_of<float>(world().rank(), count);
      world().all().broadcast(bytes(values), root, "test");
      EXPECT_TRUE(same(values, values_of<float>(root, count))) << count;
    }
}

TEST(Operations, LongArraysGoInManyPieces) {
  const std::size_t count = 1700003, members = static_cast<std::size_t>(world().size());
  const auto plain = [](std::size_t rank, std::size_t i) { return static_cast<float>(i % 4099 + rank * 5000); };
  const auto me = static_cast<std::size_t>(world().rank());
  std::vector<float> values(count), all(count * members);
  for (int round = 0; round < 2; ++round) {
    for (std::size_t i = 0; i < count; ++i) values[i] = plain(me, i);
    world().all().all_gather(bytes(values), bytes(all), "test");
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], plain(i / count, i % count)) << i;
    std::vector<float> mine(count);
    world().all().reduce_scatter(bytes(all), bytes(mine), DType::float32, "test");
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(mine[i], plain(me, i) * static_cast<float>(members)) << i;
    world().all().all_reduce(values, "test");
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::size_t r = 0; r < members; ++r) sum += plain(r, i);
      ASSERT_EQ(values[i], sum) << i;
    }
    world().all().broadcast(bytes(mine), round, "test");
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_EQ(mine[i], plain(static_cast<std::size_t>(round), i) * static_cast<float>(members)) << i;
  }
}

TEST(Operations, TextsOfDifferentLengthReachAll) {
  const auto words = [](int rank) {
    return std::string(static_cast<std::size_t>(rank) * 1000, static_cast<char>('a' + rank));
  };
  const auto all = world().all().all_gather(words(world().rank()), "test");
  ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
  for (int r = 0; r < world().size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], words(r));
  EXPECT_EQ(world().all().broadcast(words(world().rank()), world().size() - 1, "test"), words(world().size() - 1));
}

TEST(Operations, MessagesBetweenTwoAreMatchedByTagAndInOrder) {
  const int next = (world().rank() + 1) % world().size(), last = (world().rank() + world().size() - 1) % world().size();
  const auto first = values_of<float>(world().rank(), 100003), second = values_of<float>(world().rank() + 50, 7);
  std::vector<float> got_first(100003), got_second(7), got_third(7);
  const auto& all = world().all();
  Transfer late = all.receive(bytes(got_second), last, 8, "test");
  Transfer early = all.receive(bytes(got_first), last, 7, "test");
  Transfer third = all.receive(bytes(got_third), last, 8, "test");
  Transfer a = all.send(std::as_bytes(std::span(first)), next, 7, "test");
  Transfer b = all.send(std::as_bytes(std::span(second)), next, 8, "test");
  Transfer c = all.send(std::as_bytes(std::span(first).first(7)), next, 8, "test");
  for (Transfer* transfer : {&early, &late, &third, &a, &b, &c}) transfer->wait();
  EXPECT_EQ(got_first, values_of<float>(last, 100003));
  EXPECT_EQ(got_second, values_of<float>(last + 50, 7));
  EXPECT_EQ(got_third, values_of<float>(last, 7));
}

TEST(Operations, TransfersGoOnWhileAnotherOperationWaits) {
  // The first rank's long message is taken only after both have met in a barrier of others' making.
  std::vector<float> values(3000000);
  if (world().rank() == 0) {
    const auto sent = values_of<float>(0, values.size());
    Transfer transfer = world().all().send(std::as_bytes(std::span(sent)), 1, 3, "test");
    world().all().barrier("test");
    transfer.wait();
  } else if (world().rank() == 1) {
    world().all().receive(bytes(values), 0, 3, "test").wait();
    world().all().barrier("test");
    EXPECT_EQ(values, values_of<float>(0, values.size()));
  } else {
    world().all().barrier("test");
  }
}

TEST(Groups, HaveTheirMembersInTheGivenOrderAndMayOverlap) {
  std::vector<int> reversed, pair = {world().rank() / 2 * 2, world().rank() / 2 * 2 + 1};
  if (pair[1] == world().size()) pair.pop_back();
  for (int r = world().size() - 1; r >= 0; --r) reversed.push_back(r);
  const Communicator two = world().group("pair", pair), back = world().group("reversed", reversed);
  EXPECT_EQ(two.rank(), world().rank() % 2);
  EXPECT_EQ(back.rank(), world().size() - 1 - world().rank());
  for (const Communicator* group : {&two, &back, &world().all(), &two}) {
    auto values = values_of<float>(world().rank(), 5000);
    group->all_reduce(values, "test");
    EXPECT_TRUE(same(values, sum_of<float>(*group, 5000))) << group->name();
  }
}

TEST(Groups, OfTheSameRanksAreSeparate) {
  std::vector<int> ranks(static_cast<std::size_t>(world().size()));
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
  const Communicator a = world().group("a", ranks), b = world().group("b", ranks);
  const int next = (world().rank() + 1) % world().size(), last = (world().rank() + world().size() - 1) % world().size();
  auto from_a = values_of<float>(1, 1), from_b = from_a;
  Transfer in_b = b.receive(bytes(from_b), last, 0, "test"), in_a = a.receive(bytes(from_a), last, 0, "test");
  const float one = 1, two = 2;
  Transfer out_a = a.send(std::as_bytes(std::span(&one, 1)), next, 0, "test");
  Transfer out_b = b.send(std::as_bytes(std::span(&two, 1)), next, 0, "test");
  for (Transfer* transfer : {&in_a, &in_b, &out_a, &out_b}) transfer->wait();
  EXPECT_EQ(from_a[0], 1);
  EXPECT_EQ(from_b[0], 2);
}

}  // namespace
}  // namespace tessera::comm
