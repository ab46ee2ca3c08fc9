#include "framework/training/guards/rejected_results.h"

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

// Values may have blanks and signs of equality; of several ways to divide a line the rightmost one counts.
TEST(RejectedResults, FieldsAreDividedFromTheRight) {
  const auto of = [](const std::string& words) { return iterations_to_skip(words + "\n" + words + "\n").ranges(); };
  const std::vector<Range> skipped = {{6, 7}};
  EXPECT_EQ(of("x ts=a b node=n 1 device=0 jobID=j rank=1 iteration=7 status=rerun_disabled result=1 2 message=m"),
            skipped);
  EXPECT_EQ(
      of("ts=a node=n device=0 jobID= rank=1 iteration=5 status=x rank=1 iteration=7 status=rerun_disabled result=1 "
         "message= message="),
      skipped);
  EXPECT_EQ(of("ts=a node=n device=0 jobID=1 rank=1 iteration=7 status=rerun_disabled result=1 message=' rank=2 "
               "iteration=8 status=rerun_disabled result=2'"),
            skipped);
  for (const std::string wrong :
       {"ts=a node=n device=0 jobID= rank=1 iteration=7 status=rerun_disabled result=1 message=m",
        "ts=a node=n jobID=0 device=1 rank=1 iteration=7 status=rerun_disabled result=1 message=m",
        "ts=a node=n device=0 jobID=1 rank=1x iteration=7 status=rerun_disabled result=1 message=m",
        "ts=a node=n device=0 jobID=1 rank=1 iteration=7 status=rerun_disabled result= message=m",
        "ts=a node=n device=0 jobID=1 rank=1 iteration=7 status=rerun_disabled result=1 message=",
        "ts=a node=n device=0 jobID=1 rank=1 iteration=1234567890123456 status=rerun_disabled result=1 message=m"})
    EXPECT_TRUE(of(wrong).empty()) << wrong;
}

// A regular expression that recurses for each character overflows the stack.
TEST(RejectedResults, ALineOfAnyLengthIsRead) {
  const std::string filler(3'000'000, 'x');
  std::string ranks;
  for (int i = 0; i < 200'000; ++i) ranks += " rank=1 iteration=";
  const auto long_line = "ts=" + filler + " node=" + filler + " device=0 jobID=1" + ranks +
                         " rank=1 iteration=7 status=rerun_disabled result=" + filler + " message=" + filler + "\n";
  EXPECT_EQ(iterations_to_skip(long_line + long_line).ranges(), (std::vector<Range>{{6, 7}}));
  EXPECT_TRUE(iterations_to_skip(filler + ranks + ranks).ranges().empty());
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
