#include "framework/training/rejected_results.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/own_folder.h"

namespace tessera::training {
namespace {

using Range = checkpoint::IterationSet::Range;

std::string line(const char* job, int rank, int iteration, const char* status) {
  return text("ts=2026-01-02 03:04:05.678 node=a device=3 jobID=", job, " rank=", rank, " iteration=", iteration,
              " status=", status, " result=nan message='loss is NaN'\n");
}

TEST(RejectedResults, OfARankThatRejectedAnIterationTwiceAreSkipped) {
  const auto lines = line("1", 0, 7, "RerunValidationStatus.RERUN_DISABLED") + line("2", 0, 7, "rerun_disabled") +
                     line("1", 2, 9, "first_rerun_reproducible") + "not such a line\n" +
                     line("2", 2, 9, "second_rerun_reproducible") + line("1", 0, 11, "rerun_disabled");
  EXPECT_EQ(iterations_to_skip(lines).ranges(), (std::vector<Range>{{6, 7}, {8, 9}}));
}

TEST(RejectedResults, WhatARepeatDidNotConfirmIsNotSkipped) {
  const auto lines = line("1", 0, 7, "initial_run") + line("1", 0, 7, "initial_run") +
                     line("1", 0, 7, "first_rerun_not_reproducible") + line("1", 0, 7, "first_rerun_reproducible");
  EXPECT_TRUE(iterations_to_skip(lines).ranges().empty());
}

TEST(RejectedResults, IterationsThatSeveralRanksOfAJobRejectedAreNotSkipped) {
  const auto once = line("1", 0, 7, "rerun_disabled") + line("1", 1, 7, "rerun_disabled");
  EXPECT_TRUE(iterations_to_skip(once + once).ranges().empty());
}

class RejectedResultsFile : public InOwnFolder {};

TEST_F(RejectedResultsFile, IsReadAsItWasWritten) {
  const std::filesystem::path file = "rejected.txt";
  const RejectedResult result{7, RejectedStatus::first_rerun_reproducible, 61.5, "loss 61.5 is 11 times the largest"};
  add_rejected(file, result);
  EXPECT_TRUE(iterations_to_skip(read_file(file)).ranges().empty());
  add_rejected(file, result);
  EXPECT_EQ(iterations_to_skip(read_file(file)).ranges(), (std::vector<Range>{{6, 7}}));
  EXPECT_THROW(add_rejected("none/rejected.txt", result), IoError);
}

}  // namespace
}  // namespace tessera::training
