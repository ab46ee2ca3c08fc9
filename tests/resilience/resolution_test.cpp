#include "framework/resilience/resolution.h"

#include <gtest/gtest.h>

#include <random>

#include "framework/base/error.h"

namespace tessera::resilience {
namespace {

RankState at(std::int64_t committed, std::int64_t intended, std::int64_t prepared, std::int64_t told = -1) {
  return {true, {committed, intended, prepared, told}};
}

const RankState lost_rank;
const std::vector<SharedShard> pairs = {{0, {0, 2}}, {0, {1, 3}}};
const std::vector<SharedShard> single = {{0, {0}}, {0, {1}}};

TEST(Resolution, OfARunThatBeginsHasNothing) {
  const auto found = resolve(std::vector<RankState>(4), pairs, {});
  EXPECT_FALSE(found.usable);
  EXPECT_EQ(found.problem, "");
}

TEST(Resolution, CompletesTheStepThatAnyRankIntended) {
  const std::vector ranks = {at(6, 6, 7, 6), at(6, 7, 7, 6), at(7, 7, 7, 6), at(6, 6, 7, 6)};
  const auto found = resolve(ranks, pairs, {});
  EXPECT_TRUE(found.usable);
  EXPECT_EQ(found.step, 7);
  EXPECT_EQ(found.recorder, 1);
  EXPECT_EQ(found.narrator, 0);
  EXPECT_FALSE(found.reported);
  EXPECT_FALSE(found.lost());
}

TEST(Resolution, ALostRankGetsItsStateFromOneThatHasTheSame) {
  const std::vector ranks = {at(7, 7, 7), at(7, 7, 7), lost_rank, lost_rank};
  const auto found = resolve(ranks, pairs, {});
  EXPECT_TRUE(found.usable);
  EXPECT_EQ(found.gifts, (std::vector<Gift>{{0, 0, 2, false}, {1, 1, 3, false}}));
  EXPECT_TRUE(found.reported);
}

TEST(Resolution, WhoeverKnowsTellsHowFarTheFirstRankWas) {
  auto found = resolve(std::vector{lost_rank, lost_rank, at(7, 7, 7), at(7, 7, 7, 6)}, pairs, {});
  EXPECT_EQ(found.narrator, 3);
  EXPECT_FALSE(found.reported) << "the first rank may not have reported step 7";
  EXPECT_EQ(found.recorder, 2);
  found = resolve(std::vector{lost_rank, lost_rank, at(7, 7, 7, 7), at(7, 7, 7, 6)}, pairs, {});
  EXPECT_EQ(found.narrator, 2);
  EXPECT_TRUE(found.reported);
  found = resolve(std::vector{lost_rank, lost_rank, at(7, 0, 0), at(7, 0, 0)}, pairs, {});
  EXPECT_EQ(found.narrator, 2) << "a run that was loaded and has not made a step";
  EXPECT_TRUE(found.reported);
}

TEST(Resolution, ACopyServesWhereNoRankHasTheSame) {
  const std::vector ranks = {at(7, 7, 7), lost_rank};
  EXPECT_EQ(resolve(ranks, single, {}).problem, "the state of rank 1 is lost, and no rank that is left has the same");
  const std::vector<ShardCopy> copies = {{0, 0, 1}, {1, 1, 0}};
  const auto found = resolve(ranks, single, copies);
  EXPECT_EQ(found.gifts, (std::vector<Gift>{{1, 0, 1, true}}));
  const std::vector<ShardCopy> useless = {{1, 1, 1}};
  EXPECT_FALSE(resolve(ranks, single, useless).usable) << "the holder is lost too";
}

TEST(Resolution, IfARankGoesBackToACheckpointAllDo) {
  auto withdrawn = at(7, 7, 8);
  withdrawn.journal.withdrawn = true;
  for (const auto& ranks :
       {std::vector{at(7, 7, 8), withdrawn}, std::vector{at(4, 0, 0), withdrawn}, std::vector{lost_rank, withdrawn}}) {
    const auto found = resolve(ranks, single, {});
    EXPECT_FALSE(found.usable);
    EXPECT_TRUE(found.withdrawn);
    EXPECT_EQ(found.narrator, 1) << "what is kept is in its position";
    EXPECT_EQ(found.problem, "");
  }
  EXPECT_FALSE(resolve(std::vector{at(7, 7, 8), at(7, 7, 8)}, single, {}).withdrawn);
}

TEST(Resolution, ARankThatIsBehindIsAProblem) {
  const auto found = resolve(std::vector{at(7, 7, 7), at(5, 5, 5)}, single, {});
  EXPECT_FALSE(found.usable);
  EXPECT_EQ(found.problem, "rank 1 has completed step 5, and others step 7");
}

/// A model of the protocol, stopped anywhere, with any ranks lost: the step is one that every rank can complete, and
/// what is taken for reported the first rank has reported.
TEST(Resolution, OfWhateverInstantIsRight) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 draw(seed);
  int lost_first = 0;
  for (int i = 0; i < 5000; ++i) {
    // Actions of a step: prepare, all-reduce, confirm and intend, commit, an agreement, which no rank leaves before all
    // have come to it. Rank r has done done[r] of them.
    constexpr int actions = 5;
    const int ranks = 2 + static_cast<int>(draw() % 4);
    std::vector<int> done(static_cast<std::size_t>(ranks));
    const int slowest = static_cast<int>(draw() % 20);
    const auto barrier_after =
        [](int count) {  // so far a rank can come while another has done `count`: it may have entered the next
          int end = count + 2;
          while (end % actions != 2 && end % actions != 0) ++end;  // in an all-reduce or an agreement it waits
          return end - 1;
        };
    for (auto& one : done)
      one = slowest + static_cast<int>(draw() % static_cast<unsigned>(barrier_after(slowest) - slowest + 1));
    done[draw() % done.size()] = slowest;
    std::vector<RankState> found;
    std::int64_t intended_by_any = 0, reported_by_first = 0;
    for (std::size_t r = 0; r < done.size(); ++r) {
      const std::int64_t step = done[r] / actions, within = done[r] % actions;
      RankState state = at(within >= 4 ? step + 1 : step, within >= 3 ? step + 1 : step, within >= 1 ? step + 1 : step,
                           within >= 3 && within < 4 ? step
                           : within >= 4             ? step
                                                     : step - 1);
      if (within > 0 && within < 3) state.journal.told = step;  // the step's beginning confirms
      state.present = draw() % 3 != 0;
      if (state.present) intended_by_any = std::max(intended_by_any, state.journal.intended);
      if (r == 0) reported_by_first = state.journal.committed;
      found.push_back(state);
    }
    std::vector<SharedShard> all(1);
    for (int r = 0; r < ranks; ++r) all[0].ranks.push_back(r);
    const auto resolution = resolve(found, all, {});
    if (resolution.narrator < 0) continue;
    ASSERT_TRUE(resolution.usable) << resolution.problem;
    ASSERT_EQ(resolution.step, intended_by_any);
    ASSERT_TRUE(!resolution.reported || reported_by_first >= resolution.step);
    if (!found[0].present) ++lost_first;
    for (const auto& gift : resolution.gifts) {
      ASSERT_TRUE(found[static_cast<std::size_t>(gift.from)].present);
      ASSERT_FALSE(found[static_cast<std::size_t>(gift.to)].present);
    }
  }
  EXPECT_GT(lost_first, 1000);
}

}  // namespace
}  // namespace tessera::resilience
