#include "framework/base/run_event.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "framework/base/files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class RunEvent : public testing::Test {
 protected:
  RunEvent() { fs::create_directories(folder_); }
  ~RunEvent() override { fs::remove_all(folder_); }

  std::vector<Json> lines() const {
    std::vector<Json> all;
    std::istringstream in(read_file(folder_ / events_file_name));
    for (std::string line; std::getline(in, line);) all.push_back(parse_json(line));
    return all;
  }

  const fs::path folder_ = fs::path(testing::TempDir()) / text("run_event_", ::getpid());
};

TEST_F(RunEvent, IsOneLineWithItsFacts) {
  const std::string message = "a \"quoted\" text\nof two lines, not UTF-8: \xff";
  EXPECT_EQ(append_event(folder_, "note", 7, {{"message", message}, {"level", "info"}}), "");
  EXPECT_EQ(append_event(folder_, "failed", std::nullopt, {{"rank", 3}, {"host", "b"}}), "");
  const auto all = lines();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].at("event").string(), "note");
  EXPECT_EQ(all[0].at("iteration").get<std::int64_t>(), 7);
  EXPECT_EQ(all[0].at("message").string(), "a \"quoted\" text\nof two lines, not UTF-8: \xef\xbf\xbd");
  EXPECT_GT(all[0].at("time").number(), 1.7e9);
  EXPECT_FALSE(all[1].contains("iteration"));
  EXPECT_EQ(all[1].at("rank").get<std::int64_t>(), 3);
}

TEST_F(RunEvent, OfALongTextIsCutBetweenCharacters) {
  std::string message;
  while (message.size() < 100000) message += "\xc3\xa4";  // two bytes
  EXPECT_EQ(append_event(folder_, "failed", 1, {{"message", message}, {"host", "b"}}), "");
  EXPECT_LE(fs::file_size(folder_ / events_file_name), longest_event);
  const auto all = lines();
  ASSERT_EQ(all.size(), 1U);
  const auto& kept = all[0].at("message").string();
  EXPECT_GT(kept.size(), longest_event / 4);
  EXPECT_EQ(kept.substr(kept.size() - 5), "\xc3\xa4...");
  EXPECT_EQ(all[0].at("host").string(), "b");
}

TEST_F(RunEvent, BeginsANewLineAfterAnIncompleteOne) {
  std::ofstream(folder_ / events_file_name) << "{\"event\": \"sav";
  EXPECT_EQ(append_event(folder_, "start", 0), "");
  std::istringstream in(read_file(folder_ / events_file_name));
  std::string torn, whole;
  std::getline(in, torn);
  std::getline(in, whole);
  EXPECT_EQ(torn, "{\"event\": \"sav");
  EXPECT_EQ(parse_json(whole).at("event").string(), "start");
}

TEST_F(RunEvent, OfSeveralWritersStayWholeLines) {
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 50; ++i)
        append_event(folder_, "note", i, {{"message", std::string(2000, 'a')}, {"w", writer}});
    });
  for (auto& writer : writers) writer.join();
  const auto all = lines();
  EXPECT_EQ(all.size(), 200U);
  for (const auto& line : all) EXPECT_TRUE(line.is_object());
}

TEST_F(RunEvent, ThatCannotBeWrittenIsToldAndNoLinkIsFollowed) {
  EXPECT_NE(append_event(folder_ / "absent", "note", 1).find("absent/events.jsonl: cannot be opened"),
            std::string::npos);
  fs::create_symlink(folder_ / "other", folder_ / events_file_name);
  EXPECT_NE(append_event(folder_, "note", 1).find("cannot be opened"), std::string::npos);
  EXPECT_FALSE(fs::exists(folder_ / "other"));
}

}  // namespace
}  // namespace tessera
