// A worker's log: what the file holds, what is kept in memory, and what happens when the file takes no more.
#include "launch/tsrun/log_file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "framework/base/files.h"
#include "tests/own_folder.h"
#include "tests/story.h"

namespace tessera {
namespace {

class Log : public InOwnFolder {
 protected:
  static void print(tsrun::WorkerLog& log, const std::string& words) {
    ASSERT_EQ(::write(log.program_end().number(), words.data(), words.size()), static_cast<ssize_t>(words.size()));
    log.take();
    log.flush(10);
  }
  /// Writes beyond so many bytes fail, as on a full disk.
  static void limit(rlim_t bytes) {
    rlimit now = {};
    getrlimit(RLIMIT_FSIZE, &now);
    now.rlim_cur = bytes;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~Log() override { limit(RLIM_INFINITY); }
};

TEST_F(Log, ItGrowsOverStartsAndTheLastLinesAreThoseOfThisStart) {
  {
    tsrun::WorkerLog log("log", "first");
    print(log, "old 1\nold 2\n");
  }
  tsrun::WorkerLog log("log", "second");
  print(log, "new 1\nnew 2\nnew 3\n\n");
  EXPECT_EQ(read_file("log"), "old 1\nold 2\n==== second\nnew 1\nnew 2\nnew 3\n\n");
  EXPECT_EQ(log.last_lines(2), (std::vector<std::string>{"new 2", "new 3"}));
  EXPECT_EQ(log.last_lines(20).size(), 3U);
  EXPECT_EQ(log.problem(), "");
}

TEST_F(Log, TheEndOfTheProgramIsSeenAndAnUnfinishedLineIsKept) {
  tsrun::WorkerLog log("log", "");
  print(log, "no end");
  log.program_end().close();
  log.take();
  EXPECT_EQ(log.number(), -1);
  EXPECT_EQ(log.last_lines(20), std::vector<std::string>{"no end"});
}

TEST_F(Log, WhatTheFileCannotTakeIsInTheLastLinesAndCountedInTheFile) {
  tsrun::WorkerLog log("log", "");
  print(log, "before\n");
  limit(10);
  print(log, "lost 1\n");
  print(log, "lost 2\n");
  EXPECT_EQ(log.problem(), "log: cannot be written: File too large");
  EXPECT_EQ(log.last_lines(20), (std::vector<std::string>{"before", "lost 1", "lost 2"}));
  limit(RLIM_INFINITY);
  print(log, "after\n");
  EXPECT_EQ(read_file("log"),
            "before\nlos\n==== 11 bytes are missing here: log: cannot be written: File too large\nafter\n");
}

TEST_F(Log, ManyLinesKeepTheirLast) {
  tsrun::WorkerLog log("log", "");
  for (int i = 0; i < 20000; i++) print(log, text("line ", i, "\n"));
  EXPECT_EQ(log.last_lines(2), (std::vector<std::string>{"line 19998", "line 19999"}));
  EXPECT_EQ(log.last_lines(20).front(), "line 19980");
}

TEST_F(Log, ALinkIsNotFollowed) {
  std::filesystem::create_symlink("elsewhere", "log");
  EXPECT_TRUE(says(story_of([] { tsrun::WorkerLog log("log", ""); }), "log: cannot be written"));
  EXPECT_FALSE(std::filesystem::exists("elsewhere"));
}

TEST_F(Log, AFollowerShowsAtMostAMebibyteAtATime) {
  std::ostringstream out;
  tsrun::LogFollower follower(out);
  follower.add("log", "");
  const std::string line(1023, 'x');
  std::ofstream log("log");
  for (int i = 0; i < 2500; ++i) log << line << "\n";
  log << "rest";
  log.close();
  follower.show();
  EXPECT_EQ(out.str().size(), std::size_t{1} << 20);
  follower.show(true);
  EXPECT_EQ(out.str().size(), 2500 * 1024 + std::string("rest\n").size());
}

}  // namespace
}  // namespace tessera
