#include "framework/base/crc32.h"

#include <array>

#include "framework/base/crc_folding.h"

namespace tessera {
namespace {

constexpr std::uint32_t crc32_polynomial = 0xEDB88320;  // reflected: bit 31 - i is the coefficient of x^i

using Crc32Tables = std::array<std::array<std::uint32_t, 256>, 8>;

constexpr std::uint32_t times_x(std::uint32_t value) {
  return (value >> 1) ^ ((value & 1) != 0 ? crc32_polynomial : 0);
}

/// tables[k][b]: remainder of byte b followed by k zero bytes ("slicing by 8").
constexpr Crc32Tables make_crc32_tables() {
  Crc32Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    auto sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = times_x(sum);
    tables[0][byte] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}

constexpr auto crc32_tables = make_crc32_tables();

/// The register of the checksum (not inverted) after `bytes`.
std::uint32_t after(std::span<const std::byte> bytes, std::uint32_t sum) {
  const auto& tables = crc32_tables;
  const auto at = [&](std::size_t i) { return std::to_integer<std::uint32_t>(bytes[i]); };
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const auto low = sum ^ (at(i) | at(i + 1) << 8 | at(i + 2) << 16 | at(i + 3) << 24);
    sum = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
          tables[3][at(i + 4)] ^ tables[2][at(i + 5)] ^ tables[1][at(i + 6)] ^ tables[0][at(i + 7)];
  }
  for (; i < bytes.size(); ++i) sum = sum >> 8 ^ tables[0][(sum ^ at(i)) & 255];
  return sum;
}

constexpr auto crc32_folding = crc_folding(crc32_polynomial);

}  // namespace

std::uint32_t crc32_ieee_by_tables(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~after(bytes, ~before);
}

std::uint32_t crc32_ieee(std::span<const std::byte> bytes, std::uint32_t before) {
  if (!folds_crc() || bytes.size() < least_folded_bytes) return crc32_ieee_by_tables(bytes, before);
  const auto folded = fold_crc(bytes, ~before, crc32_folding);
  return ~after(folded.rest, after(folded.block, 0));
}

}  // namespace tessera
