#include "framework/base/crc32c.h"

#include <gtest/gtest.h>

#include <vector>

namespace tessera {
namespace {

std::vector<std::byte> some_bytes(std::size_t count) {
  std::vector<std::byte> bytes(count);
  std::uint32_t state = 12345;
  for (auto& byte : bytes) byte = static_cast<std::byte>((state = state * 1664525U + 1013904223U) >> 24);
  return bytes;
}

// The test values of RFC 3720, appendix B.4.
TEST(Crc32c, GivesThePublishedSums) {
  EXPECT_EQ(crc32c(std::string_view("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43U);
  EXPECT_EQ(crc32c(std::string_view()), 0U);
  EXPECT_EQ(crc_text(0x00e30692), "00e30692");
}

TEST(Crc32c, InstructionAndTableAgreeAtEveryLengthAndOffset) {
  const auto bytes = some_bytes(62000);
  for (const std::size_t length :
       {0, 1, 7, 8, 9, 63, 4096, 12287, 12288, 12289, 20479, 20480, 20481, 30001, 36864, 61441})
    for (std::size_t offset = 0; offset < 9; ++offset) {
      const auto part = std::span(bytes).subspan(offset, length);
      EXPECT_EQ(crc32c(part), crc32c_by_table(part)) << length << " bytes from " << offset;
      EXPECT_EQ(crc32c_by_lanes(part), crc32c_by_table(part)) << length << " bytes from " << offset;
      EXPECT_EQ(crc32c_by_rounds(part, 7), crc32c_by_table(part, 7)) << length << " bytes from " << offset;
    }
}

TEST(Crc32c, ProductsGiveWhatTheTableGivesForEveryRestAndBeginning) {
  const auto bytes = some_bytes(2000);
  for (std::size_t length = 480; length < 1100; ++length) {
    const auto part = std::span(bytes).subspan(length % 64, length);
    const auto before = static_cast<std::uint32_t>(length * 2654435761U);
    ASSERT_EQ(crc32c(part, before), crc32c_by_table(part, before)) << length;
  }
}

TEST(Crc32c, ASumInPiecesIsTheSumOfTheWhole) {
  const auto bytes = some_bytes(30000);
  const auto all = std::span<const std::byte>(bytes);
  for (const std::size_t cut : {0, 1, 4096, 12288, 29999, 30000}) {
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), crc32c(all)) << cut;
    EXPECT_EQ(crc32c_by_table(all.subspan(cut), crc32c_by_table(all.first(cut))), crc32c(all)) << cut;
  }
}

TEST(Crc32c, EverySingleFlippedBitChangesTheSum) {
  auto bytes = some_bytes(200);
  const auto before = crc32c(std::span<const std::byte>(bytes));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(crc32c(std::span<const std::byte>(bytes)), before) << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace tessera
