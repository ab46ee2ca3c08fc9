#include "framework/log/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <regex>
#include <thread>
#include <vector>

#include "framework/base/files.h"
#include "framework/log/repeats.h"
#include "tests/console_file.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera::log {
namespace {

const Logger logger("comm");

class LogTest : public InOwnFolder {
 protected:
  ~LogTest() override {
    set_log_level(LogLevel::info);
    set_log_rank(0, 1);
    set_log_file("");
  }
  /// What `work` writes to standard error.
  template <class Work>
  static std::string told(const Work& work) {
    testing::internal::CaptureStderr();
    work();
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, AProgramOfOneRankShowsTheMessageAlone) {
  EXPECT_EQ(told([] { logger.info("note: a = 1"); }), "note: a = 1\n");
  EXPECT_EQ(told([] { logger.error("run.yaml:3: wrong\n"); }), "run.yaml:3: wrong\n") << "one newline, no colour";
  EXPECT_EQ(told([] { logger.info(""); }), "");
}

TEST_F(LogTest, ControlCharactersOfNamesAreVisible) {
  EXPECT_EQ(told([] { logger.error("tensor '\033]0;title\a': unknown\nnext"); }),
            "tensor '\\u001b]0;title\\u0007': unknown\nnext\n");
  EXPECT_EQ(told([] { logger.warning("\r\x9b"); }), "\\u000d\\x9b\n");
}

TEST_F(LogTest, ARankOfSeveralSaysWhenAndWhoAndWhat) {
  set_log_rank(3, 8);
  const std::string line = told([] { logger.warning("rank 5 is slow"); });
  EXPECT_TRUE(std::regex_match(
      line,
      std::regex(R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[rank 3\] \[warning\] \[comm\] rank 5 is slow\n)")))
      << line;
}

TEST_F(LogTest, MessagesBelowTheLevelAreNotShown) {
  const auto all = [] {
    logger.debug("d");
    logger.info("i");
    logger.warning("levels");
    logger.error("e");
  };
  EXPECT_EQ(told(all), "i\nlevels\ne\n");
  set_log_level(LogLevel::error);
  EXPECT_EQ(told(all), "e\n");
  EXPECT_FALSE(Logger::shows(LogLevel::warning));
  set_log_level(LogLevel::debug);
  EXPECT_EQ(told([] { logger.debug("d"); }), "d\n");
}

TEST_F(LogTest, TheProgramsLevelTakesPrecedenceOverTheRecipes) {
  set_log_level(LogLevel::error);
  set_log_level_from_recipe(LogLevel::debug);
  EXPECT_FALSE(Logger::shows(LogLevel::info));
}

TEST_F(LogTest, LevelsHaveNames) {
  for (const auto& [word, level] : log_levels) EXPECT_EQ(log_level_of(word), level);
  EXPECT_TRUE(says(story_of([] { log_level_of("loud"); }), "log level 'loud': expected debug, info, warning or error"));
}

TEST_F(LogTest, TheFileHasMessagesAndLinesInOrder) {
  set_log_file("tessera.log");
  EXPECT_FALSE(std::filesystem::exists("tessera.log")) << "made with the first message";
  ConsoleFile console;
  const LineLog lines(console.descriptor());
  told([] { logger.info("begun"); });
  lines.write(" iteration 1\n");
  lines.write(" iteration 2\n", false);
  EXPECT_EQ(console.text(), " iteration 1\n");
  const std::string file = read_file("tessera.log");
  EXPECT_TRUE(std::regex_match(
      file, std::regex(R"(\[[^\]]+\] \[rank 0\] \[info\] \[comm\] begun\n iteration 1\n iteration 2\n)")))
      << file;
  set_log_level(LogLevel::warning);
  lines.write(" iteration 3\n");
  EXPECT_EQ(console.text(), " iteration 1\n") << "lines are info";
}

TEST_F(LogTest, AFileThatCannotBeWrittenIsReportedOnce) {
  set_log_file("absent/tessera.log");
  const auto write = [] { logger.info("message"); };
  EXPECT_TRUE(says(told(write), "log file absent/tessera.log: No such file or directory"));
  EXPECT_EQ(told(write), "message\n");
}

TEST_F(LogTest, ARepeatedWarningIsShownOnce) {
  EXPECT_EQ(told([] {
              for (int i = 0; i < 1000; ++i) logger.warning("the disk is full");
              logger.warning("the disk is full of logs");
            }),
            "the disk is full\nthe disk is full of logs\n");
}

TEST(RepeatLimit, ShowsAMessageOnceAnIntervalWithTheNumberOfRepetitions) {
  RepeatLimit limit;
  EXPECT_EQ(limit.show("a", 0), 0);
  EXPECT_EQ(limit.show("a", 1), std::nullopt);
  EXPECT_EQ(limit.show("b", 2), 0);
  EXPECT_EQ(limit.show("a", RepeatLimit::interval - .5), std::nullopt);
  EXPECT_EQ(limit.show("a", RepeatLimit::interval), 2);
  EXPECT_EQ(limit.show("a", 2 * RepeatLimit::interval), 0);
}

TEST(RepeatLimit, ForgetsTheOldestBeyondItsSize) {
  RepeatLimit limit;
  for (std::size_t i = 0; i <= RepeatLimit::most_known; ++i)
    EXPECT_EQ(limit.show(std::to_string(i), 1e-3 * static_cast<double>(i)), 0);
  EXPECT_EQ(limit.show("0", 3), 0) << "forgotten";
  EXPECT_EQ(limit.show(std::to_string(RepeatLimit::most_known), 3), std::nullopt);
}

TEST_F(LogTest, MessagesAppearAboveTheStatusLine) {
  ConsoleFile console;
  StatusLine status(console.descriptor());
  status.show("12% done");
  LineLog(console.descriptor()).write("a line\n");
  status.show("13% done");
  status.leave();
  EXPECT_EQ(console.text(), "12% done\r\033[Ja line\n12% done\r\033[J13% done\r\033[J13% done\n");
}

TEST_F(LogTest, AHiddenStatusLineStaysHidden) {
  ConsoleFile console;
  {
    StatusLine status(console.descriptor());
    status.show("12% done");
    status.hide();
    LineLog(console.descriptor()).write("a line\n");
  }
  EXPECT_EQ(console.text(), "12% done\r\033[Ja line\n");
}

TEST_F(LogTest, ThreadsWriteWholeMessages) {
  set_log_file("tessera.log");
  told([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        for (int i = 0; i < 100; ++i) logger.info("thread " + std::to_string(t) + " " + std::string(300, '.'));
      });
    for (auto& thread : threads) thread.join();
  });
  std::istringstream file(read_file("tessera.log"));
  const std::regex whole(R"(\[[^\]]+\] \[rank 0\] \[info\] \[comm\] thread [0-3] \.{300})");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) ASSERT_TRUE(std::regex_match(line, whole)) << line;
  EXPECT_EQ(lines, 400);
}

}  // namespace
}  // namespace tessera::log
