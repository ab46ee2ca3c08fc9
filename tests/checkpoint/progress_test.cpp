#include "framework/checkpoint/progress.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "framework/base/error.h"

namespace tessera::checkpoint {
namespace {

TEST(IterationSet, IsTheSetOfWhatWasAddedAsSeparateAscendingRanges) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(text("seed ", seed));
  std::mt19937 draw(seed);
  for (int i = 0; i < 500; ++i) {
    IterationSet ours;
    std::set<std::int64_t> theirs;
    for (unsigned adds = draw() % 12; adds > 0; --adds) {
      const std::int64_t begin = draw() % 40, end = begin + draw() % 5;
      ours.add(begin, end);
      for (auto n = begin; n < end; ++n) theirs.insert(n);
    }
    for (std::int64_t n = -1; n < 46; ++n) ASSERT_EQ(ours.contains(n), theirs.count(n) != 0) << n;
    for (std::size_t r = 1; r < ours.ranges().size(); ++r) ASSERT_LT(ours.ranges()[r - 1][1], ours.ranges()[r][0]);
  }
}

TEST(Progress, NumbersAndFindingsAreReadAsTheyWereWritten) {
  Progress progress;
  progress.iteration = 20;
  progress.numbers = {5.625, 0.1, 17, 18, 1};
  progress.findings.skip.add(7, 10);
  progress.findings.skip.add(12, 13);
  progress.findings.roll_back_end = 12;
  const auto read = read_progress(write_progress(progress), "a test");
  EXPECT_EQ(read.findings, progress.findings);
  EXPECT_EQ(read.numbers.largest_grad_norm, 0.1);
  EXPECT_EQ(write_progress(read), write_progress(progress));
}

TEST(Progress, OfAnOlderCheckpointHasNoFindings) {
  const auto read = read_progress(R"({"iteration": 20, "consumed_samples": 40, "seed": 1})", "a test");
  EXPECT_EQ(read.findings, Findings{});
  EXPECT_EQ(read.numbers.last_good, 19);
}

}  // namespace
}  // namespace tessera::checkpoint
