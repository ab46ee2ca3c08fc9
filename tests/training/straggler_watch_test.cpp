#include "framework/training/guards/straggler_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/story.h"

namespace tessera::training {
namespace {

/// Ranks that make steps together: each step takes as long as the slowest rank computes.
class Ranks {
 public:
  Ranks(std::vector<int> stages, double ratio) {
    for (std::size_t r = 0; r < stages.size(); ++r)
      ranks_.emplace_back(ratio, static_cast<int>(stages.size()), stages[r], text("host", r));
  }
  /// One step; returns what is logged.
  std::vector<std::string> step(const std::vector<double>& computing) {
    const double slowest = *std::max_element(computing.begin(), computing.end());
    std::size_t due = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) due += ranks_[r].add(slowest, slowest - computing[r]) ? 1 : 0;
    if (due == 0) return {};
    EXPECT_EQ(due, ranks_.size()) << "the window ends at different steps";
    std::vector<StragglerWatch::Window> all;
    std::vector<std::string> first;
    for (auto& rank : ranks_) all.push_back(rank.window({.process_peak = static_cast<std::int64_t>(all.size())}));
    for (auto& rank : ranks_) {
      std::copy(all.begin(), all.end(), rank.all_windows().begin());
      const auto lines = rank.close();
      if (&rank == &ranks_.front()) first = lines;
      EXPECT_EQ(lines, first);
    }
    ++windows;
    return first;
  }
  int windows = 0;

 private:
  std::vector<StragglerWatch> ranks_;
};

TEST(StragglerWatchTest, NamesTheSlowRankOnceAfterThreeWindowsAndWhenItIsFastAgain) {
  Ranks ranks({0, 0, 0, 0}, 1.4);
  std::vector<std::string> lines;
  for (int i = 0; i < 400; ++i)
    for (const auto& line : ranks.step({.1, .1, .15, .1})) {
      lines.push_back(line);
      EXPECT_EQ(ranks.windows, 3);
    }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(says(lines[0], "straggler: rank 2 on host2 computes 1.50 times"));
  EXPECT_TRUE(says(lines[0], "150.0 ms of 100.0 ms a step"));
  lines.clear();
  for (int i = 0; i < 400; ++i)
    for (const auto& line : ranks.step({.1, .1, .1, .1})) lines.push_back(line);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(says(lines[0], "rank 2 on host2 is no longer a straggler"));
}

TEST(StragglerWatchTest, StagesAreComparedWithThemselves) {
  Ranks ranks({0, 0, 0, 1, 1, 1}, 1.4);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ranks.step({.1, .1, .1, .3, .3, .3}).empty());
  EXPECT_GT(ranks.windows, 10);
}

TEST(StragglerWatchTest, AStageOfOneRankIsComparedWithNobody) {
  Ranks ranks({0, 1}, 1.4);
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(ranks.step({.1, .3}).empty());
}

TEST(StragglerWatchTest, SingleSlowStepsAndWindowsAreNotReported) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  Ranks ranks({0, 0, 0}, 1.4);
  for (int i = 0; i < 2000; ++i) {
    const bool slow = ranks.windows % 3 == 0 && i > 30;  // never three windows in a row
    std::vector<double> computing = {.1, slow ? .3 : .1, .1};
    if (random() % 10 == 0) computing[random() % 3] = 2;
    EXPECT_TRUE(ranks.step(computing).empty()) << "step " << i;
  }
  EXPECT_GT(ranks.windows, 10);
}

TEST(StragglerWatchTest, AWindowHasAboutFiveSecondsOfSteps) {
  for (const auto& [seconds, steps] : {std::pair{.001, 5000}, {.5, 10}, {60., 3}}) {
    Ranks ranks({0, 0}, 1.4);
    while (ranks.windows == 0) ranks.step({seconds, seconds});
    int count = 0;
    for (; ranks.windows == 1; ++count) ranks.step({seconds, seconds});
    EXPECT_EQ(count, steps) << seconds;
  }
}

TEST(StragglerWatchTest, TellsTheMedianTimeOfEachRankOnceAfterAWindow) {
  StragglerWatch watch(1.4, 3, 0, "a host whose name is as long as the standard lets it be, and longer");
  for (int i = 0; i < StragglerWatch::first_window; ++i)
    EXPECT_EQ(watch.add(.5, .3), i + 1 == StragglerWatch::first_window);
  const auto own = watch.window({.used = {.weights = 7}, .process_peak = 9});
  EXPECT_DOUBLE_EQ(own.computing, .2);
  EXPECT_DOUBLE_EQ(own.step, .5);
  EXPECT_EQ(own.memory.used.weights, 7);
  EXPECT_EQ(own.memory.process_peak, 9);
  EXPECT_EQ(std::string(own.host.data()), "a host whose name is as long as the standard lets it be, and lo");
  auto slow = own, fast = own;
  slow.computing = .4;
  fast.computing = .1;
  watch.all_windows()[0] = own;
  watch.all_windows()[1] = slow;
  watch.all_windows()[2] = fast;
  EXPECT_FALSE(watch.take_rank_times());
  watch.close();
  const auto times = watch.take_rank_times();
  ASSERT_TRUE(times);
  EXPECT_EQ(std::vector(times->seconds.begin(), times->seconds.end()), (std::vector{own.computing, .4, .1}));
  EXPECT_EQ(times->slowest, 1);
  EXPECT_EQ(times->fastest_seconds, .1);
  EXPECT_EQ(times->slowest_seconds, .4);
  EXPECT_FALSE(watch.take_rank_times());
}

TEST(StragglerWatchTest, NothingIsCollectedForRatioZeroAndForOneRank) {
  StragglerWatch off(0, 4, 0, "a"), alone(1.4, 1, 0, "a");
  for (int i = 0; i < 100; ++i) {
    EXPECT_FALSE(off.add(1, 0));
    EXPECT_FALSE(alone.add(1, 0));
  }
}

}  // namespace
}  // namespace tessera::training
