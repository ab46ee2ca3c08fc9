#include "framework/base/clock.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/error.h"
#include "framework/base/files.h"

namespace tessera {
namespace {

TEST(Stopwatch, MeasuresSecondsAndBeginsAnewAtEachLap) {
  const Stopwatch all;
  Stopwatch watch;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const double lap = watch.lap();
  EXPECT_GE(lap, 0.020);
  const double after = watch.seconds();
  EXPECT_LE(lap + after, all.seconds());
}

TEST(Memory, SeesWhatIsTouched) {
  const auto before = peak_resident_bytes();
  EXPECT_GT(before, 100'000);
  std::vector<char> block(static_cast<std::size_t>(before) + (64 << 20), 1);  // more than what earlier tests freed
  EXPECT_GE(peak_resident_bytes(), before + (60 << 20));
  EXPECT_EQ(block[12345], 1);
}

TEST(Memory, OfTheProcessAloneHasNoPagesOfFiles) {
  const auto path = std::filesystem::temp_directory_path() / text("tessera_pages_", ::getpid());
  constexpr std::size_t size = 32 << 20;
  std::ofstream(path) << std::string(size, 'x');
  const auto before = private_resident_bytes();
  ASSERT_GT(before, 100'000);
  {
    const MappedFile file(path);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < size; i += 4096) sum += std::to_integer<std::size_t>(file.bytes()[i]);
    EXPECT_EQ(sum, size / 4096 * 'x');
    EXPECT_LT(private_resident_bytes(), before + (8 << 20));
  }
  std::filesystem::remove(path);
  std::vector<char> block(size, 1);
  EXPECT_GT(private_resident_bytes(), before + (24 << 20));
  EXPECT_EQ(block[12345], 1);
}

}  // namespace
}  // namespace tessera
