#include "framework/cli/preprocess_meter.h"

#include <gtest/gtest.h>

#include "tests/console_file.h"

namespace tessera::cli {
namespace {

preprocessing::PreprocessProgress at(std::int64_t bytes, std::int64_t documents) {
  return {bytes, 10'000'000, documents, documents * 100, 0};
}

TEST(PreprocessMeter, PrintsALineAfterEverySoManyDocuments) {
  ConsoleFile out;
  double now = 0;
  PreprocessMeter meter(
      {.interval = 100, .console = out.descriptor(), .terminal = false, .clock = [&] { return now; }});
  meter(at(0, 0));
  now = 2;
  meter(at(4'000'000, 250));
  now = 3;
  meter(at(5'000'000, 299));
  EXPECT_EQ(out.text(),
            "Processed 100 documents (125 docs/s, 2 MB/s).\nProcessed 200 documents (125 docs/s, 2 MB/s).\n");
}

TEST(PreprocessMeter, OfAResumedRunOnlyItsOwnPartCounts) {
  ConsoleFile out;
  double now = 0;
  PreprocessMeter meter(
      {.interval = 100, .console = out.descriptor(), .terminal = false, .clock = [&] { return now; }});
  meter(at(4'000'000, 450));
  now = 2;
  meter(at(6'000'000, 510));
  EXPECT_EQ(out.text().substr(0, 24), "Processed 500 documents ");
  EXPECT_EQ(meter.rates(at(6'000'000, 510), 450), "30 documents/s, 1 MB/s, 0.003 million tokens/s");
}

TEST(PreprocessMeter, OnATerminalOneLineIsRewritten) {
  ConsoleFile out;
  double now = 0;
  {
    PreprocessMeter meter({.interval = 0, .console = out.descriptor(), .terminal = true, .clock = [&] { return now; }});
    meter(at(0, 0));
    now = 10;
    meter(at(5'000'000, 1000));
  }
  EXPECT_NE(out.text().find("50.0 %, 1000 documents, 0.1 million tokens, 100 documents/s, 0.5 MB/s"), std::string::npos)
      << out.text();
  EXPECT_NE(out.text().find("10 s left"), std::string::npos) << out.text();
  EXPECT_EQ(out.text().substr(out.text().size() - 4), "\r\033[J");
}

}  // namespace
}  // namespace tessera::cli
