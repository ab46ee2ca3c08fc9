#include "framework/base/standard_output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "tests/console_file.h"

namespace tessera {
namespace {

TEST(StandardOutputTest, EverythingIsWrittenAtTheEnd) {
  const ConsoleFile file;
  const std::string much(200'000, 'x');
  {
    StandardOutput output(file.descriptor());
    std::cout << "a " << 1 << "\n" << much;
    EXPECT_EQ(output.finish(), "");
  }
  EXPECT_EQ(file.text(), "a 1\n" + much);
  EXPECT_TRUE(std::cout.good());
}

TEST(StandardOutputTest, AFullDiskIsReportedWithItsReason) {
  const int full = ::open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "this system has no /dev/full";
  for (const auto* words : {"x", "flushed\n"}) {
    StandardOutput output(full);
    std::cout << words;
    if (words[1] != 0) std::cout << std::flush;
    std::cout << "more";
    EXPECT_EQ(output.finish(), "No space left on device");
  }
  EXPECT_TRUE(std::cout.good()) << "the next user of std::cout starts anew";
  ::close(full);
}

TEST(StandardOutputTest, NothingWrittenIsNoFailure) {
  StandardOutput output(-1);
  EXPECT_EQ(output.finish(), "");
}

TEST(StandardOutputTest, AClosedDescriptorIsReported) {
  StandardOutput output(-1);
  std::cout << "x";
  EXPECT_EQ(output.finish(), "Bad file descriptor");
}

TEST(StandardOutputTest, AReaderThatHasGoneMissesNothing) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  auto* const before = std::signal(SIGPIPE, SIG_IGN);
  StandardOutput output(ends[1]);
  std::cout << "x";
  EXPECT_EQ(output.finish(), "");
  std::signal(SIGPIPE, before);
  ::close(ends[1]);
}

TEST(StandardOutputTest, ControlCharactersAreVisibleAlsoAcrossPieces) {
  const ConsoleFile file;
  {
    StandardOutput output(file.descriptor());
    std::cout << "\033[31m"
              << "\xc2" << std::flush << "\x9b"
              << "\xe2\x82" << std::flush << "\xac"
              << "\xe2";
  }
  EXPECT_EQ(file.text(), "\\u001b[31m\\u009b\xe2\x82\xac\\xe2");
}

TEST(StandardOutputTest, TextForProgramsIsUnchanged) {
  const ConsoleFile file;
  {
    StandardOutput output(file.descriptor());
    std::cout << "\r";
    output.pass_text();
    std::cout << "\r\xff";
  }
  EXPECT_EQ(file.text(), "\\u000d\r\xff");
}

}  // namespace
}  // namespace tessera
