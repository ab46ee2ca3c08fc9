#include <gtest/gtest.h>

#include "tests/golden/multimodal.h"

namespace tessera::multimodal {
namespace {

void expect_passed(const std::vector<CaseResult>& results, std::size_t cases) {
  EXPECT_EQ(results.size(), cases);  // a file that is not found would leave its cases out
  for (const auto& result : results)
    EXPECT_EQ(result.verdict, CaseResult::Verdict::passed) << result.name << ": " << result.summary;
}

TEST(RecordedTexts, AreRepeated) {
  expect_passed(run_multimodal_text_cases(std::filesystem::path(TESTS_DATA) / "multimodal" / "text"), 91);
}

TEST(RecordedOrders, AreRepeated) {
  expect_passed(run_multimodal_order_cases(std::filesystem::path(TESTS_DATA) / "multimodal" / "order"), 40);
}

}  // namespace
}  // namespace tessera::multimodal
