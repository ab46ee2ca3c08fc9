#include "framework/base/crc32.h"

#include <array>
#include <cstring>

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

#if defined(__x86_64__)

/// x^power modulo the polynomial, as the instruction takes it: the product of two reflected operands is one bit short.
constexpr long long crc32_factor(int power) {
  std::uint32_t value = 0x80000000;
  for (int i = 0; i < power; ++i) value = times_x(value);
  return static_cast<long long>(value) << 1;
}

constexpr std::size_t fold_bytes = 16, lanes = 4;

using Block = long long __attribute__((vector_size(fold_bytes)));  ///< a polynomial of degree 127

__attribute__((target("pclmul"))) Block folded(Block sum, Block factors, Block next) {
  return __builtin_ia32_pclmulqdq128(sum, factors, 0x00) ^ __builtin_ia32_pclmulqdq128(sum, factors, 0x11) ^ next;
}

Block block_at(const std::byte* at) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  return block;
}

/// Blocks of 16 bytes are polynomials; one that lies n bits before another is added to it after multiplication by x^n
/// modulo the polynomial, its two halves by x^(n + 64) and x^n. Four lanes hide the latency of the instruction. The
/// block that remains has the same remainder as all of them, which the tables give. Source: V. Gopal et al., "Fast CRC
/// Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009. `bytes` has at least 64.
__attribute__((target("pclmul"))) std::uint32_t after_by_products(std::span<const std::byte> bytes, std::uint32_t sum) {
  const auto* at = bytes.data();
  auto left = bytes.size() - lanes * fold_bytes;
  Block a = block_at(at) ^ Block { static_cast<long long>(sum), 0 };
  Block b = block_at(at + 16), c = block_at(at + 32), d = block_at(at + 48);
  at += lanes * fold_bytes;
  const Block far = {crc32_factor(4 * 128 + 32), crc32_factor(4 * 128 - 32)};
  const Block near = {crc32_factor(128 + 32), crc32_factor(128 - 32)};
  for (; left >= lanes * fold_bytes; left -= lanes * fold_bytes, at += lanes * fold_bytes) {
    a = folded(a, far, block_at(at));
    b = folded(b, far, block_at(at + 16));
    c = folded(c, far, block_at(at + 32));
    d = folded(d, far, block_at(at + 48));
  }
  a = folded(folded(folded(a, near, b), near, c), near, d);
  for (; left >= fold_bytes; left -= fold_bytes, at += fold_bytes) a = folded(a, near, block_at(at));
  std::array<std::byte, fold_bytes> rest;
  std::memcpy(rest.data(), &a, rest.size());
  return after({at, left}, after(rest, 0));
}

#endif

}  // namespace

std::uint32_t crc32_ieee_by_tables(std::span<const std::byte> bytes, std::uint32_t before) {
  return ~after(bytes, ~before);
}

std::uint32_t crc32_ieee(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool multiplies = __builtin_cpu_supports("pclmul") != 0;
  if (multiplies && bytes.size() >= lanes * fold_bytes) return ~after_by_products(bytes, ~before);
#endif
  return crc32_ieee_by_tables(bytes, before);
}

}  // namespace tessera
