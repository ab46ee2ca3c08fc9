#include <gtest/gtest.h>

#include "tests/golden/images.h"

namespace tessera::images {
namespace {

TEST(RecordedPixels, EqualTheOriginalProgramsInEveryBit) {
  const std::filesystem::path folder = TESTS_DATA "/images";
  ASSERT_TRUE(golden::is_pixels(folder));
  const auto results = golden::run_pixel_cases(folder);
  EXPECT_GE(results.size(), 29U);
  for (const auto& result : results)
    EXPECT_EQ(result.verdict, CaseResult::Verdict::passed) << result.name << ": " << result.summary;
}

}  // namespace
}  // namespace tessera::images
