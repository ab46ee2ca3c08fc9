#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

/// Factors of one polynomial for the computation of a CRC of 32 bits by carry-less multiplication: x^(n + 32) and
/// x^(n - 32) modulo the polynomial for each distance of n bits over which a block is moved.
struct CrcFolding {
  using Factors = std::array<long long, 2>;
  Factors by_2048, by_512, by_128;
};

/// The factors of a polynomial in reflected form: bit 31 - i is the coefficient of x^i.
constexpr CrcFolding crc_folding(std::uint32_t polynomial) {
  const auto factor = [&](int power) {
    std::uint32_t value = 0x80000000;
    for (int i = 0; i < power; ++i) value = (value >> 1) ^ ((value & 1) != 0 ? polynomial : 0);
    // As the instruction takes it: the product of two reflected operands is one bit short.
    return static_cast<long long>(value) << 1;
  };
  const auto both = [&](int distance) { return CrcFolding::Factors{factor(distance + 32), factor(distance - 32)}; };
  return {both(2048), both(512), both(128)};
}

/// 16 bytes that, followed by `rest`, have the same CRC, beginning with a register of 0, as all bytes with the register
/// with which they began.
struct FoldedCrc {
  std::array<std::byte, 16> block;
  std::span<const std::byte> rest;
};

/// The least number of bytes that can be folded, and the width of the instructions that this processor has for it.
inline constexpr std::size_t least_folded_bytes = 64, least_wide_folded_bytes = 512;
bool folds_crc();
bool folds_crc_wide();

/// Folds the bytes behind the register `sum` (not inverted). Requires folds_crc() and least_folded_bytes; uses the wide
/// instructions if it can.
FoldedCrc fold_crc(std::span<const std::byte> bytes, std::uint32_t sum, const CrcFolding& folding);

}  // namespace tessera
