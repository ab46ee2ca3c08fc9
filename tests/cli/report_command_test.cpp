#include <gtest/gtest.h>

#include "framework/cli/report.h"
#include "tests/story.h"

namespace tessera::cli {
namespace {

TEST(ReportCommand, TakesAsManyRunsAsThereAreLetters) {
  EXPECT_EQ(story_of([] { check_number_of_runs(26); }), "no error");
  EXPECT_EQ(story_of([] { check_number_of_runs(27); }), "27 runs were given; give at most 26");
}

}  // namespace
}  // namespace tessera::cli
