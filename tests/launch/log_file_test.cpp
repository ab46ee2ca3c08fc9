// A worker's log: what the file holds, what is kept in memory, and what happens when the file takes no more.
#include "launch/tsrun/log_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

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

/// A screen whose reader takes only what a test asks for.
class Follower : public Log {
 protected:
  Follower() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    reading_ = tsrun::Descriptor(ends[0]);
    writing_ = tsrun::Descriptor(ends[1]);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
  }
  /// All that is shown while the reader reads and `shows` runs.
  std::string shown_by(const std::function<void()>& shows, tsrun::Screen& screen) {
    std::string all;
    std::thread reader([&] {
      char bytes[65536];
      for (auto count = read(reading_.number(), bytes, sizeof bytes); count > 0;
           count = read(reading_.number(), bytes, sizeof bytes)) {
        all.append(bytes, static_cast<std::size_t>(count));
        if (all.back() == '\0') return;
      }
    });
    shows();
    screen.echo(std::string(1, '\0'), "", 1);
    reader.join();
    all.pop_back();
    return all;
  }
  void write_lines(int count, char letter = 'x') const {
    std::ofstream log("log", std::ios::app);
    for (int i = 0; i < count; ++i) log << std::string(1023, letter) << "\n";
  }
  std::function<void(const std::string&)> tell() {
    return [this](const std::string& words) { told_ += words; };
  }
  tsrun::Descriptor reading_, writing_;
  std::string told_;
};

TEST_F(Follower, ItShowsAtMostAMebibyteAtATime) {
  tsrun::Screen screen(8 << 20, writing_.number());
  tsrun::LogFollower follower(screen, tell());
  follower.add("log", "");
  write_lines(2500);
  std::ofstream("log", std::ios::app) << "rest";
  EXPECT_EQ(shown_by([&] { follower.show(); }, screen).size(), std::size_t{1} << 20);
  EXPECT_FALSE(follower.shows("log"));
  EXPECT_EQ(shown_by([&] { follower.show(true); }, screen).size(), 1476 * 1024 + std::string("rest\n").size());
  EXPECT_TRUE(follower.shows("log"));
  EXPECT_EQ(told_, "");
}

TEST_F(Follower, WhatHasNoLineEndsIsShownInParts) {
  tsrun::Screen screen(8 << 20, writing_.number());
  tsrun::LogFollower follower(screen, tell());
  follower.add("log", "");
  const std::string progress = std::string(700 << 10, '.') + "\r";
  const auto shown_after = [&](const std::string& more) {
    std::ofstream("log", std::ios::app) << more;
    return shown_by([&] { follower.show(); }, screen);
  };
  EXPECT_EQ(shown_after(progress), "");
  EXPECT_EQ(shown_after(progress), progress + progress + "\n");
  EXPECT_EQ(shown_after("done\n"), "done\n");
}

TEST_F(Follower, AReaderThatStopsForAWhileGetsEverythingLater) {
  tsrun::Screen screen(64 << 10, writing_.number());
  tsrun::LogFollower follower(screen, tell());
  follower.add("log", "");
  write_lines(1000);
  for (int turn = 0; turn < 100; ++turn) follower.show();  // nobody reads: none of them waits
  EXPECT_LE(screen.room(), 4096U);
  EXPECT_EQ(shown_by([&] { follower.finish(); }, screen), read_file("log"));
  EXPECT_EQ(told_, "");
}

TEST_F(Follower, OfWhatAReaderIsTooSlowForTheLastWholeLinesAreShown) {
  tsrun::Screen screen(64 << 10, writing_.number());
  tsrun::LogFollower follower(screen, tell(), 100 << 10);
  follower.add("log", "");
  write_lines(1000, 'a');
  std::ofstream("log", std::ios::app) << "half ";
  write_lines(49, 'b');
  const auto shown = shown_by([&] { follower.finish(); }, screen);
  // From 50 KiB before the end, 5 bytes into a line of a's; then "half bbb...".
  EXPECT_EQ(shown, read_file("log").substr(1000 * 1024));
  EXPECT_EQ(told_, "not shown here, because this output was not read: 1024000 bytes of log; the files have all of it");
}

TEST_F(Follower, AReaderThatReadsNoMoreIsLeft) {
  tsrun::Screen screen(64 << 10, writing_.number());
  tsrun::LogFollower follower(screen, tell());
  follower.add("log", "");
  write_lines(1000);
  follower.finish(1);
  // The pipe has a page of it, and the next one is being written.
  EXPECT_EQ(told_, "not shown here, because this output was not read: 1015808 bytes of log; the files have all of it");
  EXPECT_FALSE(screen.finish(60)) << "it is given up for good";
  follower.show(true);
  EXPECT_EQ(told_.find("not shown"), told_.rfind("not shown")) << "told twice: " << told_;
}

}  // namespace
}  // namespace tessera
