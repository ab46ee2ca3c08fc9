#include "framework/reporting/tensorboard.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "framework/base/error.h"
#include "framework/base/files.h"
#include "tests/own_folder.h"

namespace tessera::reporting {
namespace {

class EventFileTest : public InOwnFolder {
 protected:
  static std::vector<std::filesystem::path> files() { return list_folder("events"); }

  /// What the real TensorBoard reads; null when it is not installed.
  static nlohmann::json as_tensorboard_reads() {
    const char* given = std::getenv("TESSERA_TEST_PYTHON");
    const std::string python = given != nullptr && *given != 0 ? given : "python3";
    const auto command = "'" + python + "' " TESTS_DATA "/../reporting/read_events.py events 2>errors";
    FILE* pipe = popen(command.c_str(), "r");
    std::string said;
    for (int c = 0; (c = std::fgetc(pipe)) != EOF;) said.push_back(static_cast<char>(c));
    const int status = pclose(pipe);
    constexpr int no_tensorboard = 77, no_python = 127;
    if (WIFEXITED(status) && (WEXITSTATUS(status) == no_tensorboard || WEXITSTATUS(status) == no_python)) return {};
    EXPECT_EQ(status, 0) << read_file("errors");
    return nlohmann::json::parse(said);
  }

  /// Steps first..last of two curves, one over iterations and one over samples, 8 samples a step.
  static void write_steps(int first, int last) {
    EventFile file("events");
    for (int i = first; i <= last; ++i) {
      const Scalar over_steps[] = {{"lm loss", 10.0 - i}, {"learning-rate", 0.1 * i}};
      const Scalar over_samples[] = {{"lm loss vs samples", 10.0 - i}};
      file.add(i, over_steps);
      file.add(8 * i, over_samples);
    }
    EXPECT_STREQ(file.complaint(), "");
  }
};

/// CRC-32C bit by bit: slow, and too short to be wrong.
std::uint32_t plain_crc(std::string_view bytes) {
  std::uint32_t sum = 0xffffffffU;
  for (const char c : bytes) {
    sum ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? 0x82f63b78U : 0U);
  }
  return ~sum;
}

std::uint32_t plain_mask(std::uint32_t sum) { return ((sum >> 15U) | (sum << 17U)) + 0xa282ead8U; }

TEST_F(EventFileTest, RecordsAreFramedAsTheFormatSays) {
  write_steps(300, 300);
  ASSERT_EQ(files().size(), 1U);
  EXPECT_EQ(files()[0].filename().string().find("events.out.tfevents."), 0U);
  const auto bytes = read_file(files()[0]);
  std::vector<std::string> events;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::uint32_t of_length = 0, of_event = 0;
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&of_length, bytes.data() + at + 8, 4);
    ASSERT_LE(at + 16 + length, bytes.size());
    events.push_back(bytes.substr(at + 12, length));
    std::memcpy(&of_event, bytes.data() + at + 12 + length, 4);
    EXPECT_EQ(of_length, plain_mask(plain_crc(bytes.substr(at, 8))));
    EXPECT_EQ(of_event, plain_mask(plain_crc(events.back())));
    at += 16 + length;
  }
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].substr(9), std::string("\x1a\x0d") + "brain.Event:2");
  // step 300 is the varint AC 02; value 9.7 - 300 + 0.3 = -290 is 0xc3910000
  const std::string first_value =
      std::string("\x0a\x0e\x0a\x07", 4) + "lm loss" + std::string("\x15\x00\x00\x91\xc3", 5);
  EXPECT_EQ(events[1].substr(9, 5 + first_value.size()), std::string("\x10\xac\x02\x2a\x26", 5) + first_value);
}

TEST_F(EventFileTest, TensorBoardReadsWhatWasWritten) {
  write_steps(1, 3);
  const auto read = as_tensorboard_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with tensorboard; name one in TESSERA_TEST_PYTHON";
  const float rates[] = {0.1F, 0.2F, 0.3F};
  const nlohmann::json expected = {
      {"lm loss", {{1, 9.0}, {2, 8.0}, {3, 7.0}}},
      {"lm loss vs samples", {{8, 9.0}, {16, 8.0}, {24, 7.0}}},
      {"learning-rate", {{1, double{rates[0]}}, {2, double{rates[1]}}, {3, double{rates[2]}}}}};
  EXPECT_EQ(read, expected);
}

TEST_F(EventFileTest, ARestartLeavesNoSecondBranch) {
  write_steps(1, 10);
  cut_event_files("events", 5, 40);
  write_steps(6, 10);
  EXPECT_EQ(files().size(), 2U);
  const auto read = as_tensorboard_reads();
  if (read.is_null()) GTEST_SKIP() << "no python with tensorboard; name one in TESSERA_TEST_PYTHON";
  ASSERT_EQ(read["lm loss"].size(), 10U);
  ASSERT_EQ(read["lm loss vs samples"].size(), 10U);
  for (int i = 1; i <= 10; ++i) {
    EXPECT_EQ(read["lm loss"][static_cast<std::size_t>(i) - 1], (nlohmann::json{i, 10.0 - i}));
    EXPECT_EQ(read["lm loss vs samples"][static_cast<std::size_t>(i) - 1], (nlohmann::json{8 * i, 10.0 - i}));
  }
}

TEST_F(EventFileTest, CuttingKeepsThePrefixByteForByteAndDropsTornRecords) {
  write_steps(1, 5);
  const auto five = read_file(files()[0]);
  write_file_atomic(files()[0], five + five.substr(0, 20));
  cut_event_files("events", 5, 40);
  EXPECT_EQ(read_file(files()[0]), five);
  cut_event_files("events", 3, 24);
  const auto three = read_file(files()[0]);
  EXPECT_LT(three.size(), five.size());
  EXPECT_EQ(five.substr(0, three.size()), three);
}

TEST_F(EventFileTest, ANewRunInAnOldFolderBeginsWithoutOldPoints) {
  write_steps(1, 5);
  cut_event_files("events", 0, 0);
  EXPECT_TRUE(files().empty());
  cut_event_files("nowhere", 0, 0);
}

TEST_F(EventFileTest, LaterFilesSortBehindEarlierOnes) {
  write_steps(1, 1);
  const auto first = files()[0];
  write_steps(2, 2);
  write_steps(3, 3);
  ASSERT_EQ(files().size(), 3U);
  EXPECT_EQ(files()[0], first);
  EXPECT_NE(read_file(files()[2]).find("lm loss"), std::string::npos);
}

TEST_F(EventFileTest, AFolderThatCannotBeMadeIsAnError) {
  write("events", "a file stands here");
  EXPECT_THROW(EventFile("events"), IoError);
}

}  // namespace
}  // namespace tessera::reporting
