#include "framework/resilience/state_verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::resilience {
namespace {

using Shards = std::vector<std::vector<HolderState>>;

HolderState good(int rank, std::uint32_t checksum = 7, bool of_copy = false) { return {{rank, of_copy}, checksum}; }
HolderState bad(int rank, Damage found, Damage noted = Damage::none, bool of_copy = false) {
  return {{rank, of_copy}, 99, found, noted};
}

TEST(StateVerdict, NothingIsWrongWhereAllAreAlike) {
  const auto verdict = judge(Shards{{good(0), good(1)}, {good(2, 5)}}, {}, true);
  EXPECT_TRUE(verdict.sound());
}

TEST(StateVerdict, WhoseStateChangedInMemoryGetsItFromARankThatIsRight) {
  const auto verdict = judge(Shards{{good(0), bad(1, Damage::weights), good(2)}, {good(3)}}, {}, true);
  EXPECT_FALSE(verdict.sound());
  EXPECT_EQ(verdict.problem, "");
  EXPECT_EQ(verdict.wrong, std::vector{1});
  EXPECT_EQ(verdict.repairs, (std::vector{Repair{0, {0, false}, {1, false}}}));
}

TEST(StateVerdict, ACopyGivesAndGetsToo) {
  const auto from = judge(Shards{{bad(0, Damage::state), good(3, 7, true)}}, {}, true);
  EXPECT_EQ(from.repairs, (std::vector{Repair{0, {3, true}, {0, false}}}));
  const auto to = judge(Shards{{good(0), bad(3, Damage::none, Damage::state, true)}}, {}, true);
  EXPECT_EQ(to.repairs, (std::vector{Repair{0, {0, false}, {3, true}}}));
  EXPECT_EQ(to.wrong, std::vector{3});
}

TEST(StateVerdict, WithoutAnotherHolderItCannotBeRepaired) {
  const auto verdict = judge(Shards{{bad(0, Damage::state)}, {good(1)}}, {}, true);
  EXPECT_EQ(verdict.problem, "no other rank has the same weights and optimizer state");
  EXPECT_EQ(verdict.wrong, std::vector{0});
}

TEST(StateVerdict, GradientsOfDamagedWeightsSpoilAllRanks) {
  const auto used = judge(Shards{{good(0), bad(1, Damage::none, Damage::weights)}}, {}, true);
  EXPECT_EQ(used.problem, "gradients of damaged weights were used in an update");
  EXPECT_TRUE(used.repairs.empty());
  EXPECT_EQ(used.wrong, std::vector{1});
  const auto not_used = judge(Shards{{good(0), bad(1, Damage::none, Damage::state)}}, {}, true);
  EXPECT_EQ(not_used.problem, "") << "what only the optimizer reads is in no gradient";
  EXPECT_EQ(not_used.repairs.size(), 1U);
}

TEST(StateVerdict, OfThreeTheMajorityIsRightAndOfTwoNobodyKnows) {
  const auto three = judge(Shards{{good(0, 7), good(4, 8), good(5, 7)}}, {}, false);
  EXPECT_EQ(three.wrong, std::vector{4});
  EXPECT_TRUE(three.suspects.empty());
  EXPECT_NE(three.problem, "") << "when it became wrong is not known: gradients may be wrong since";
  const auto two = judge(Shards{{good(0, 7), good(4, 8)}}, {}, false);
  EXPECT_TRUE(two.wrong.empty());
  EXPECT_EQ(two.suspects, (std::vector{0, 4}));
  EXPECT_NE(two.problem, "");
}

TEST(StateVerdict, ARepairNeedsHoldersThatAgree) {
  const auto verdict = judge(Shards{{good(0, 7), bad(1, Damage::state), good(2, 8)}}, {}, true);
  EXPECT_TRUE(verdict.repairs.empty());
  EXPECT_NE(verdict.problem, "");
}

TEST(StateVerdict, WeightsThatFollowFromCheckedShardsAreMadeAgain) {
  const std::vector<AlikeRanks> weights = {{"weights", true, {0, 1}, {3, 4}}};
  const Shards shards = {{good(0)}, {good(1)}};
  EXPECT_TRUE(judge(shards, weights, true).rederive);
  EXPECT_EQ(judge(shards, weights, false).problem, "the weights differ") << "a shard itself may be wrong";
  const std::vector<AlikeRanks> norms = {{"norms", false, {0, 1, 2}, {3, 4, 3}}};
  const auto verdict = judge(shards, norms, true);
  EXPECT_EQ(verdict.problem, "the norms differ");
  EXPECT_EQ(verdict.wrong, std::vector{1});
}

/// Random damage: what is repaired comes from a holder without damage, each damaged holder is repaired once, and nobody
/// who is right is named while the others can be repaired.
TEST(StateVerdict, ARepairIsCompleteOrThereIsNone) {
  const auto seed = std::random_device{}();
  std::mt19937 random(seed);
  const auto draw = [&](unsigned below) { return random() % below; };
  for (int i = 0; i < 3000; ++i) {
    Shards shards(1 + draw(3));
    std::size_t damaged = 0;
    for (auto& holders : shards)
      for (int rank = 0, count = 1 + static_cast<int>(draw(3)); rank < count; ++rank) {
        const bool hurt = draw(4) == 0;
        holders.push_back(hurt ? bad(rank, draw(2) ? Damage::state : Damage::none, Damage::state) : good(rank));
        damaged += hurt ? 1 : 0;
      }
    const auto verdict = judge(shards, {}, true);
    EXPECT_EQ(verdict.sound(), damaged == 0) << "seed " << seed;
    const bool possible = std::all_of(shards.begin(), shards.end(), [](const auto& holders) {
      return std::any_of(holders.begin(), holders.end(), [](const auto& one) { return one.checksum == 7; });
    });
    EXPECT_EQ(verdict.problem.empty(), possible) << "seed " << seed;
    EXPECT_EQ(verdict.repairs.size(), possible ? damaged : 0) << "seed " << seed;
    for (const auto& repair : verdict.repairs) {
      const auto& holders = shards[repair.shard];
      EXPECT_EQ(holders[static_cast<std::size_t>(repair.from.rank)].checksum, 7U) << "seed " << seed;
      EXPECT_EQ(holders[static_cast<std::size_t>(repair.to.rank)].checksum, 99U) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace tessera::resilience
