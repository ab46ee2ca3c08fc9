#include "framework/base/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace tessera {
namespace {

TEST(Crc32, IsTheSumOfZip) {
  const std::string words = "123456789";
  const auto bytes = std::as_bytes(std::span(words.data(), words.size()));
  EXPECT_EQ(crc32_ieee(bytes), 0xCBF43926U);
  EXPECT_EQ(crc32_ieee(bytes.subspan(2), crc32_ieee(bytes.first(2))), 0xCBF43926U);
}

TEST(Crc32, ProductsGiveWhatTablesGiveForEveryLengthAndPlace) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 draw(seed);
  std::vector<std::byte> bytes(2000);
  for (auto& byte : bytes) byte = static_cast<std::byte>(draw() & 255);
  for (std::size_t first = 0; first < 20; ++first)
    for (std::size_t size = 0; size < 700; ++size) {
      const auto part = std::span(bytes).subspan(first, size);
      const auto before = static_cast<std::uint32_t>(draw());
      ASSERT_EQ(crc32_ieee(part, before), crc32_ieee_by_tables(part, before)) << first << " " << size;
    }
}

}  // namespace
}  // namespace tessera
