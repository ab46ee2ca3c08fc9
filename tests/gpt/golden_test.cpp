#include <gtest/gtest.h>

#include "tests/golden/data.h"

namespace tessera::gpt {
namespace {

TEST(RecordedDataPipeline, IsRepeatedToTheBit) {
  const auto results = run_data_cases(std::filesystem::path(TESTS_DATA) / "golden_data");
  EXPECT_EQ(results.size(), 87U);  // a file that is not found would leave its cases out
  for (const auto& result : results)
    EXPECT_EQ(result.verdict, CaseResult::Verdict::passed) << result.name << ": " << result.summary;
}

TEST(SentencePiece, IdsTextsAndSpecialIdsAreThoseOfMegatron) {
  const auto results = run_data_cases(std::filesystem::path(TESTS_DATA) / "sentencepiece");
  EXPECT_EQ(results.size(), 24U);  // 12 tokenizers, their properties and their ids
  for (const auto& result : results)
    EXPECT_EQ(result.verdict, CaseResult::Verdict::passed) << result.name << ": " << result.summary;
}

}  // namespace
}  // namespace tessera::gpt
