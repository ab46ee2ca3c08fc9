#include "framework/resilience/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "framework/base/error.h"

namespace tessera::resilience {
namespace {

/// Ranks in groups that have their state alike, on hosts, all by chance; hosts need not have neighbouring ranks.
struct Placement {
  explicit Placement(std::mt19937& draw) {
    const auto below = [&](int end) { return static_cast<int>(draw() % static_cast<unsigned>(end)); };
    const int ranks = 1 + below(12), most_hosts = 1 + below(4);
    for (int r = 0; r < ranks; ++r) hosts.push_back(10 * below(most_hosts));
    std::vector<int> order(hosts.size());
    for (std::size_t part = 0; part < 1 + draw() % 2; ++part) {
      for (int r = 0; r < ranks; ++r) order[static_cast<std::size_t>(r)] = r;
      std::shuffle(order.begin(), order.end(), draw);
      for (std::size_t begin = 0; begin < order.size();) {
        const auto end = std::min(order.size(), begin + 1 + draw() % 3);
        SharedShard shard{part, {order.begin() + static_cast<long>(begin), order.begin() + static_cast<long>(end)}};
        std::sort(shard.ranks.begin(), shard.ranks.end());
        shards.push_back(shard);
        begin = end;
      }
    }
  }
  int host_of(int rank) const { return hosts[static_cast<std::size_t>(rank)]; }
  /// Whether each shard is left somewhere if one host is lost.
  bool survives(int host, std::span<const ShardCopy> copies) const {
    for (std::size_t i = 0; i < shards.size(); ++i) {
      bool left =
          std::any_of(shards[i].ranks.begin(), shards[i].ranks.end(), [&](int r) { return host_of(r) != host; });
      for (const auto& copy : copies) left = left || (copy.shard == i && host_of(copy.holder) != host);
      if (!left) return false;
    }
    return true;
  }
  bool survives_any(std::span<const ShardCopy> copies) const {
    return std::all_of(hosts.begin(), hosts.end(), [&](int host) { return survives(host, copies); });
  }
  std::vector<SharedShard> shards;
  std::vector<int> hosts;
};

TEST(Coverage, IsWhatTheLossOfEachHostLeaves) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 draw(seed);
  int covered = 0, gaps = 0;
  for (int i = 0; i < 2000; ++i) {
    const Placement place(draw);
    auto copies = copies_of(place.shards, place.hosts);
    while (!copies.empty() && draw() % 3 == 0) copies.erase(copies.begin() + static_cast<long>(draw() % copies.size()));
    for (auto& copy : copies)
      if (draw() % 4 == 0) copy.holder = copy.owner;  // of no use
    const auto found = coverage_of("", place.shards, copies, place.hosts);
    ASSERT_EQ(found.host(), place.survives_any(copies)) << words_of(found);
    ASSERT_TRUE(found.process());
    found.host() ? ++covered : ++gaps;
  }
  EXPECT_GT(covered, 100);
  EXPECT_GT(gaps, 100);
}

TEST(Coverage, CopiesCoverWhateverHasTwoHostsAndAreNeverOnTheHostOfTheirShard) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 draw(seed);
  for (int i = 0; i < 2000; ++i) {
    const Placement place(draw);
    const auto copies = copies_of(place.shards, place.hosts);
    const bool several =
        std::any_of(place.hosts.begin(), place.hosts.end(), [&](int host) { return host != place.hosts.front(); });
    ASSERT_EQ(coverage_of("", place.shards, copies, place.hosts).host(), several);
    ASSERT_TRUE(several || copies.empty());
    for (const auto& copy : copies) {
      const auto& ranks = place.shards[copy.shard].ranks;
      ASSERT_EQ(copy.owner, ranks.front());
      for (const int rank : ranks) ASSERT_NE(place.host_of(rank), place.host_of(copy.holder));
    }
  }
}

TEST(Coverage, HoldersOfAHostTakeTurns) {
  const std::vector<SharedShard> alone = {{0, {0}}, {0, {1}}, {0, {2}}, {0, {3}}};
  const std::vector<int> hosts = {0, 0, 1, 1};
  const std::vector<ShardCopy> expected = {{0, 0, 2}, {1, 1, 3}, {2, 2, 0}, {3, 3, 1}};
  EXPECT_EQ(copies_of(alone, hosts), expected);
  const std::vector<SharedShard> odd = {{0, {0}}, {0, {1}}, {0, {2}}};
  const std::vector<ShardCopy> on_one = {{0, 0, 2}, {1, 1, 2}, {2, 2, 0}};
  EXPECT_EQ(copies_of(odd, std::vector<int>{0, 0, 1}), on_one);
}

TEST(Coverage, IsToldWithItsReason) {
  const std::vector<SharedShard> replicas = {{0, {0, 2}}, {0, {1, 3}}};
  EXPECT_EQ(words_of(coverage_of("", replicas, {}, std::vector<int>{0, 0, 1, 1})),
            "process loss: covered; host loss: covered");
  EXPECT_EQ(words_of(coverage_of("", replicas, {}, std::vector<int>{0, 0, 0, 1})),
            "process loss: covered; host loss: NOT covered, because no other host has state that ranks 0, 2 have");
  EXPECT_EQ(words_of(coverage_of("", replicas, {}, std::vector<int>{5, 5, 5, 5})),
            "process loss: covered; host loss: NOT covered, because all ranks are on one host");
  EXPECT_EQ(words_of(coverage_of("nothing is kept", replicas, {}, std::vector<int>{0, 0, 1, 1})),
            "process loss: NOT covered, because nothing is kept; host loss: NOT covered, because "
            "nothing is kept");
  std::vector<SharedShard> many;
  for (int r = 0; r < 6; ++r) many.push_back({0, {r}});
  EXPECT_EQ(coverage_of("", many, {}, std::vector<int>{0, 0, 0, 1, 1, 1}).host_gap,
            "no other host has state that ranks 0, 1, 2 and 3 more have");
}

}  // namespace
}  // namespace tessera::resilience
