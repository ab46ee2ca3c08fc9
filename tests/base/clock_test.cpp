#include "framework/base/clock.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Stopwatch, MeasuresSecondsAndBeginsAnewAtEachLap) {
  Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double lap = watch.lap();
  EXPECT_GE(lap, 0.020);
  EXPECT_LT(lap, 10);  // a machine under load may be slow, but not that slow
  EXPECT_LT(watch.seconds(), lap);
}

TEST(Memory, SeesWhatIsTouched) {
  const auto before = peak_resident_bytes();
  EXPECT_GT(before, 100'000);
  std::vector<char> block(static_cast<std::size_t>(before) + (64 << 20), 1);  // more than what earlier tests freed
  EXPECT_GE(peak_resident_bytes(), before + (60 << 20));
  EXPECT_EQ(block[12345], 1);
}

}  // namespace
}  // namespace tessera
