#include "framework/base/memory_limit.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "framework/base/error.h"
#include "tests/sanitized.h"

namespace tessera {
namespace {

TEST(MemoryLimit, IsTheMachinesOrLess) {
  const auto host = host_memory_limit();
  EXPECT_GT(host.bytes, std::uint64_t{1} << 20);
  EXPECT_LT(host.bytes, std::uint64_t{1} << 50);
  EXPECT_FALSE(host.source.empty());
  EXPECT_LE(process_memory_limit().bytes, host.bytes);
  EXPECT_NO_THROW(require_memory("a little", 1000));
  EXPECT_THROW(require_memory("much", std::int64_t{1} << 55), ConfigError);
}

void lower(int what, std::uint64_t bytes) {
  const rlimit limit{bytes, bytes};
  setrlimit(what, &limit);
}

TEST(MemoryLimitDeathTest, HoldsTheLimitsOfTheProcess) {
  if (sanitized) GTEST_SKIP() << "the mappings of AddressSanitizer are terabytes and count";
  EXPECT_EXIT(
      {
        lower(RLIMIT_DATA, 123456789);
        const auto limit = process_memory_limit();
        std::exit(limit.bytes == 123456789 && limit.source.find("ulimit -d") != std::string::npos ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(MemoryLimit, IsNamedWhenMemoryRanOut) {
  const auto refused = [](const auto& work) {
    try {
      within_memory("big.json", work);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  for (const auto& words : {refused([] { throw std::bad_alloc(); }), refused([] { throw std::length_error("x"); })}) {
    EXPECT_EQ(words.rfind("big.json: memory ran out; this process may have ", 0), 0U) << words;
    EXPECT_NE(words.find(process_memory_limit().source), std::string::npos) << words;
  }
  EXPECT_EQ(within_memory("big.json", [] { return 5; }), 5);
}

TEST(BinaryUnits, AreTheLargestThatGiveAnIntegerPart) {
  EXPECT_EQ(in_binary_units(1000), "1000 bytes");
  EXPECT_EQ(in_binary_units(1536), "1.50 KiB");
  EXPECT_EQ(in_binary_units(0x1p62), "4.00 EiB");
}

}  // namespace
}  // namespace tessera
