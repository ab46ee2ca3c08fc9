#include "framework/cli/meter.h"

#include <gtest/gtest.h>

#include "tests/console_file.h"

namespace tessera::cli {
namespace {

struct Told {
  ConsoleFile out;
  double now = 100;
  Meter::Options options(bool terminal, const std::string& announcement) {
    return {announcement, out.descriptor(), terminal, [this] { return now; }};
  }
};

TEST(Meter, LongWorkIsAnnouncedOnceWhereThereIsNoTerminal) {
  Told told;
  Meter meter("eval:", told.options(false, "eval: scoring 1000 tokens"));
  told.now += 4;
  meter(100, 1000);
  EXPECT_EQ(told.out.text(), "eval: scoring 1000 tokens, about 40 s\n");
  told.now += 40;
  meter(200, 1000);
  EXPECT_EQ(told.out.text(), "eval: scoring 1000 tokens, about 40 s\n");
}

TEST(Meter, ShortWorkAndWorkWithoutAnAnnouncementAreSilentThere) {
  Told told;
  Meter brief("eval:", told.options(false, "eval: scoring 1000 tokens"));
  Meter silent("merge:", told.options(false, ""));
  told.now += 4;
  brief(900, 1000);
  silent(1, 1000);
  EXPECT_EQ(told.out.text(), "");
}

TEST(Meter, ATerminalHasALineThatIsWrittenAnewAndTakenAway) {
  Told told;
  {
    Meter meter("eval:", told.options(true, "eval: scoring 1000 tokens"));
    told.now += 4;
    meter(250, 1000);
    EXPECT_EQ(told.out.text(), "eval: 25.0 %, 12 s left");
    told.now += 0.1;
    meter(260, 1000);
    EXPECT_EQ(told.out.text(), "eval: 25.0 %, 12 s left");
  }
  EXPECT_EQ(told.out.text(), "eval: 25.0 %, 12 s left\r\033[J");
}

}  // namespace
}  // namespace tessera::cli
