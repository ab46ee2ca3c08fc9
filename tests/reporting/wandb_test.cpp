#include "framework/reporting/wandb.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/own_folder.h"

namespace tessera::reporting {
namespace {

class WandbTest : public InOwnFolder {
 protected:
  static WandbRun about() {
    return {.id = "0123abcd",
            .project = "models",
            .name = "first",
            .host = "here",
            .config = {{"model_config", R"({"num_layers": 2})"}}};
  }
  static std::string path() {
    const auto folders = list_folder("wandb");
    EXPECT_EQ(folders.size(), 1U);
    return folders.empty() ? "" : folders[0].string() + "/run-0123abcd.wandb";
  }
  /// What W&B's own messages say; null if it is not installed.
  static nlohmann::json as_wandb_reads() {
    const char* given = std::getenv("TESSERA_TEST_PYTHON");
    const std::string python = given != nullptr && *given != 0 ? given : "python3";
    const auto command = "'" + python + "' " TESTS_DATA "/../reporting/read_wandb.py '" + path() + "' 2>errors";
    FILE* pipe = popen(command.c_str(), "r");
    std::string said;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) said.push_back(static_cast<char>(c));
    const int status = pclose(pipe);
    constexpr int no_wandb = 77, no_python = 127;
    if (WIFEXITED(status) && (WEXITSTATUS(status) == no_wandb || WEXITSTATUS(status) == no_python)) return {};
    EXPECT_EQ(status, 0) << read_file("errors");
    return nlohmann::json::parse(said);
  }
  static std::string row(std::int64_t iteration) {
    return text("{\"iteration\": ", iteration, ", \"consumed_samples\": ", 8 * iteration,
                ", \"loss\": ", 10.0 - static_cast<double>(iteration),
                ", \"skipped\": false, \"least_load\": [0.5, null]}\n");
  }
  static void write_steps(int first, int last, const MetricsFile::Kept& kept = {}) {
    WandbFile file("w", about(), kept, 1000 + first);
    add_steps(file, first, last);
  }
  static void add_steps(WandbFile& file, int first, int last) {
    for (int i = first; i <= last; ++i) file.add(i, 8 * i, row(i), 1000 + i);
    EXPECT_STREQ(file.complaint(), "");
  }
  WandbTest() { std::filesystem::create_directory("w"), std::filesystem::create_directory_symlink("w/wandb", "wandb"); }
};

TEST_F(WandbTest, ItsOwnMessagesSayWhatWasWritten) {
  write_steps(1, 3);
  const auto read = as_wandb_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  EXPECT_EQ(read["run"], (nlohmann::json{"0123abcd", "models", "first", "here"}));
  EXPECT_EQ(read["config"], nlohmann::json::parse(R"([{"model_config": {"num_layers": 2}}])"));
  EXPECT_EQ(read["metrics"], nlohmann::json::parse(R"([["iteration", "", ""], ["", "*", "iteration"]])"));
  ASSERT_EQ(read["history"].size(), 3U);
  const auto expected = nlohmann::json::parse(
      R"({"_step": 1, "step": 1, "_timestamp": 1002.0, "_runtime": 1.0, "iteration": 2, "consumed_samples": 16,)"
      R"( "loss": 8, "skipped": false, "least_load": [0.5, null]})");
  EXPECT_EQ(read["history"][1], expected);
  EXPECT_EQ(read["summary"]["loss"], 7);
  EXPECT_EQ(read["exit"], nlohmann::json{0});
  for (std::size_t i = 0; i < read["numbers"].size(); ++i) EXPECT_EQ(read["numbers"][i], i + 1);
}

TEST_F(WandbTest, ANumberThatIsNoneIsShownAsSuch) {
  {
    WandbFile file("w", about(), {}, 5);
    file.add(1, 8, "{\"iteration\": 1, \"consumed_samples\": 8, \"loss\": null}\n", 6);
    file.add(1, 8, ", \"validation_loss\": 2.5}\n", 7);
  }
  const auto read = as_wandb_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  EXPECT_EQ(read["history"][0]["loss"], "NaN");
  EXPECT_EQ(read["history"][1]["validation_loss"], 2.5);
  EXPECT_EQ(read["history"][1]["iteration"], 1);
}

/// Rows of every size, so that heads and rows lie over the ends of blocks in every way.
TEST_F(WandbTest, RecordsLieOverTheEndsOfBlocks) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  constexpr int rows = 200;
  {
    WandbFile file("w", about(), {}, 0);
    for (int i = 1; i <= rows; ++i) {
      std::string line = "{\"iteration\": 1";
      const auto values = draw() % (i == 7 ? 6000 : 120);
      for (std::size_t v = 0; v < values; ++v) line += text(", \"k", v, "\": ", v);
      file.add(i, i, line + "}\n", i);
    }
  }
  EXPECT_GT(read_file(path()).size(), 4U * 32768);
  const auto read = as_wandb_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  ASSERT_EQ(read["history"].size(), std::size_t{rows});
  for (int i = 0; i < rows; ++i) EXPECT_EQ(read["history"][static_cast<std::size_t>(i)]["iteration"], i + 1);
}

/// Number of whole records in frames of LevelDB's log format; -1 if a byte is not in its place.
int records_of(std::string_view content) {
  constexpr std::size_t block = 32768, head = 7;
  int records = 0;
  for (std::size_t at = head; at < content.size();) {
    const auto left = block - at % block;
    if (left < head) {
      if (content.substr(at, left).find_first_not_of('\0') != std::string_view::npos) return -1;
      at += left;
      continue;
    }
    const auto size = static_cast<std::size_t>(static_cast<unsigned char>(content[at + 4])) |
                      static_cast<std::size_t>(static_cast<unsigned char>(content[at + 5])) << 8U;
    const auto type = content[at + 6];
    if (head + size > left || at + head + size > content.size() || type < 1 || type > 4) return -1;
    records += type == 1 || type == 4 ? 1 : 0;
    at += head + size;
  }
  return records;
}

/// A first row of every length around that of two blocks, so that each number of bytes is left at the end of one,
/// before a record that is longer than a block.
TEST_F(WandbTest, NoHeadLiesOverTheEndOfABlock) {
  for (std::size_t letters = 64600; letters < 65500; ++letters) {
    std::filesystem::remove_all("w/wandb");
    {
      WandbFile file("w", about(), {}, 5);
      file.add(1, 8, "{\"" + std::string(letters, 'k') + "\": 1}\n", 6);
    }
    ASSERT_EQ(records_of(read_file(path())), 7) << letters;
  }
}

TEST_F(WandbTest, ARunHasOneHistoryOverAllItsStarts) {
  write_steps(1, 5);
  write_steps(4, 9, {.iteration = 3});
  write_steps(10, 10, {.iteration = 9});
  const auto read = as_wandb_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  ASSERT_EQ(read["history"].size(), 10U);
  for (int i = 0; i < 10; ++i) {
    const auto& row = read["history"][static_cast<std::size_t>(i)];
    EXPECT_EQ(row["iteration"], i + 1);
    EXPECT_EQ(row["_step"], i);
    EXPECT_EQ(row["_runtime"], i) << "since the first start";
  }
  EXPECT_EQ(read["exit"], nlohmann::json{0});
  for (std::size_t i = 0; i < read["numbers"].size(); ++i) EXPECT_EQ(read["numbers"][i], i + 1);
}

TEST_F(WandbTest, EvaluationsThatWillBeRepeatedAreCutOff) {
  const auto write = [&] {
    WandbFile file("w", about(), {}, 0);
    add_steps(file, 1, 2);
    file.add(2, 16, ", \"validation_loss\": 2.5}\n", 3);
    file.add(2, 16, ", \"final_validation_loss\": 2.5, \"test_loss\": 3}\n", 3);
  };
  const auto rows_after = [&](const MetricsFile::Kept& kept) {
    std::filesystem::remove_all("w/wandb");
    write();
    { WandbFile again("w", about(), kept, 9); }
    const auto read = as_wandb_reads();
    return read.is_null() ? -1 : static_cast<int>(read["history"].size());
  };
  const auto all = rows_after({.iteration = 2});
  if (all < 0) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  EXPECT_EQ(all, 4);
  EXPECT_EQ(rows_after({.iteration = 2, .final_evaluations = false}), 3);
  EXPECT_EQ(rows_after({.iteration = 2, .validation = false, .final_evaluations = false}), 2);
  EXPECT_EQ(rows_after({.iteration = 1}), 1);
}

/// A killed process leaves no end, and possibly a torn record.
TEST_F(WandbTest, ATornRecordIsRemovedByTheNextStart) {
  write_steps(1, 3);
  const auto whole = read_file(path());
  for (const std::size_t left : {whole.size() - 1, whole.size() - 20, whole.size() - 200}) {
    std::filesystem::resize_file(path(), left);
    write_steps(3, 4, {.iteration = 2});
    const auto read = as_wandb_reads();
    if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
    ASSERT_EQ(read["history"].size(), 4U) << left;
    write_file_atomic(path(), whole);
  }
}

TEST_F(WandbTest, AFileThatIsNotOneIsLeftAndANewRunBegins) {
  write_steps(1, 3);
  write_file_atomic(path(), "something else");
  { WandbFile file("w", about(), {.iteration = 3}, 2000); }
  EXPECT_EQ(list_folder("wandb").size(), 2U);
}

TEST_F(WandbTest, AFullDiskCostsRowsOnly) {
  WandbFile file("w", about(), {}, 0);
  add_steps(file, 1, 2);
  const auto size = std::filesystem::file_size(path());
  const rlimit now{.rlim_cur = size + 40, .rlim_max = RLIM_INFINITY};
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &now);
  file.add(3, 24, row(3), 3);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(std::string(file.complaint()).find("could not be written"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(path()), size);
  file.add(4, 32, row(4), 4);
  const auto read = as_wandb_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with wandb; name one in TESSERA_TEST_PYTHON";
  EXPECT_EQ(read["history"].back()["iteration"], 4);
}

}  // namespace
}  // namespace tessera::reporting
