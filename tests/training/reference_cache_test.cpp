#include "framework/training/step/reference_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::training {
namespace {

using Entry = model::ReferenceScores::Entry;

class ReferenceCacheTest : public InOwnFolder {};

TEST_F(ReferenceCacheTest, AFullDiskCostsTheRestOfTheRecordsAndIsToldOnce) {
  const model::ReferenceScores scores{};
  std::vector<std::string> told;
  ReferenceCache cache("logps", "rank0", true, true, scores, [&](const std::string& words) { told.push_back(words); });
  const std::array<Entry, 2> first{Entry{1, -0.5}, Entry{2, -1.5}}, later{Entry{3, -2.5}, Entry{4, -3.5}};
  cache.add(first);
  EXPECT_TRUE(told.empty());
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{2 * 24 + 1, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);  // to this process a full disk, after one byte of a record
  cache.add(later);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  cache.add(later);  // there is room again
  ASSERT_EQ(told.size(), 1U);
  EXPECT_TRUE(says(told[0], "no more log-probabilities of the reference model are stored")) << told[0];
  EXPECT_EQ(std::filesystem::file_size("logps/rank0-0.bin"), 2U * 24 + 1);
}

}  // namespace
}  // namespace tessera::training
