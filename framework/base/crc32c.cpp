#include "framework/base/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

#include "framework/base/crc_folding.h"

namespace tessera {
namespace {

constexpr std::uint32_t polynomial = 0x82f63b78;  // reflected
constexpr auto folding = crc_folding(polynomial);

// A CRC is linear over bits, so the effect of appending zero bytes is a 32 x 32 bit matrix, given by its columns.
using Columns = std::array<std::uint32_t, 32>;

constexpr std::uint32_t apply(const Columns& step, std::uint32_t sum) {
  std::uint32_t out = 0;
  for (std::size_t bit = 0; sum != 0; ++bit, sum >>= 1)
    if ((sum & 1) != 0) out ^= step[bit];
  return out;
}

/// The matrix applied twice: appending twice as many bits.
constexpr Columns twice(const Columns& step) {
  Columns out{};
  for (std::size_t bit = 0; bit < 32; ++bit) out[bit] = apply(step, step[bit]);
  return out;
}

/// The matrix for appending 2^log_bytes zero bytes.
constexpr Columns zero_bytes(int log_bytes) {
  Columns step{};
  step[0] = polynomial;
  for (std::size_t bit = 1; bit < 32; ++bit) step[bit] = std::uint32_t{1} << (bit - 1);
  for (int doubling = 0; doubling < log_bytes + 3; ++doubling) step = twice(step);
  return step;
}

/// The same matrix as four lookup tables, one for each byte of the checksum.
using Leap = std::array<std::array<std::uint32_t, 256>, 4>;

constexpr Leap leap_over(int log_bytes) {
  const auto step = zero_bytes(log_bytes);
  Leap leap{};
  for (std::uint32_t byte = 0; byte < 256; ++byte)
    for (std::uint32_t place = 0; place < 4; ++place) leap[place][byte] = apply(step, byte << (8 * place));
  return leap;
}

constexpr std::uint32_t over(const Leap& leap, std::uint32_t sum) {
  return leap[0][sum & 255] ^ leap[1][(sum >> 8) & 255] ^ leap[2][(sum >> 16) & 255] ^ leap[3][sum >> 24];
}

/// slices[k][b]: checksum of byte b followed by k zero bytes ("slicing by 8").
constexpr std::array<std::array<std::uint32_t, 256>, 8> make_slices() {
  std::array<std::array<std::uint32_t, 256>, 8> slices{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1) ^ ((sum & 1) != 0 ? polynomial : 0);
    slices[0][byte] = sum;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      slices[k][byte] = (slices[k - 1][byte] >> 8) ^ slices[0][slices[k - 1][byte] & 255];
  return slices;
}

constexpr auto slices = make_slices();

#if defined(__x86_64__)

// Three lanes of 4 KiB: long enough to hide the cost of combining them, short enough for the L1 cache.
constexpr int log_lane = 12;
constexpr std::size_t lane = std::size_t{1} << log_lane;
constexpr auto leap = leap_over(log_lane);

std::uint64_t word(const std::byte* at) {
  std::uint64_t out;
  std::memcpy(&out, at, sizeof out);
  return out;
}

/// Three lanes from registers of `first`, 0 and 0 on; the register after all of them.
std::uint64_t joined(std::uint64_t first, std::uint64_t second, std::uint64_t third) {
  const auto two = over(leap, static_cast<std::uint32_t>(first)) ^ second;
  return over(leap, static_cast<std::uint32_t>(two)) ^ third;
}

/// The instruction has a latency of three cycles and a throughput of one per cycle, so three lanes are processed in
/// parallel and combined afterwards. A lane is a page, and the processor's own prefetching stops at its end: the next
/// lanes are fetched meanwhile.
__attribute__((target("sse4.2"))) std::uint32_t by_instruction(std::span<const std::byte> bytes, std::uint32_t before) {
  const auto* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t sum = ~before;
  for (; left >= 3 * lane; at += 3 * lane, left -= 3 * lane) {
    std::uint64_t second = 0, third = 0;
    for (std::size_t line = 0; line < lane; line += 64) {
      for (const std::size_t first : {line, lane + line, 2 * lane + line}) __builtin_prefetch(at + 3 * lane + first);
      for (std::size_t i = line; i < line + 64; i += 8) {
        sum = _mm_crc32_u64(sum, word(at + i));
        second = _mm_crc32_u64(second, word(at + lane + i));
        third = _mm_crc32_u64(third, word(at + 2 * lane + i));
      }
    }
    sum = joined(sum, second, third);
  }
  for (; left >= 8; at += 8, left -= 8) sum = _mm_crc32_u64(sum, word(at));
  auto narrow = static_cast<std::uint32_t>(sum);
  for (; left > 0; ++at, --left) narrow = _mm_crc32_u8(narrow, std::to_integer<std::uint8_t>(*at));
  return ~narrow;
}

// Behind the lanes of a round stand two pages that are folded (crc_folding.h): products of two blocks at once take
// other ports of the processor than the instruction, so a round takes hardly longer than its lanes.
constexpr int log_folded = log_lane + 1;
constexpr std::size_t round_bytes = 3 * lane + 2 * lane;
constexpr auto leap_folded = leap_over(log_folded);

using Block = long long __attribute__((vector_size(16)));   ///< a polynomial of degree 127
using Blocks = long long __attribute__((vector_size(32)));  ///< two of them

#define TESSERA_ROUNDS __attribute__((target("avx2,vpclmulqdq,pclmul,sse4.2")))
// The compilers' names of the instruction: kernels/ alone includes their headers.
#if defined(__clang__)
#define TESSERA_PRODUCTS __builtin_ia32_pclmulqdq256
#else
#define TESSERA_PRODUCTS __builtin_ia32_vpclmulqdq_v4di
#endif

TESSERA_ROUNDS inline Blocks moved(Blocks sum, Blocks factors, const std::byte* next) {
  Blocks added;
  std::memcpy(&added, next, sizeof added);
  return TESSERA_PRODUCTS(sum, factors, 0x00) ^ TESSERA_PRODUCTS(sum, factors, 0x11) ^ added;
}

/// The register after four blocks in a row, from 0 on.
TESSERA_ROUNDS inline std::uint64_t sum_of(Blocks first, Blocks last) {
  const Block near = {folding.by_128[0], folding.by_128[1]};
  Block sum = {first[0], first[1]};
  for (const Block next : {Block{first[2], first[3]}, Block{last[0], last[1]}, Block{last[2], last[3]}})
    sum = __builtin_ia32_pclmulqdq128(sum, near, 0x00) ^ __builtin_ia32_pclmulqdq128(sum, near, 0x11) ^ next;
  return _mm_crc32_u64(_mm_crc32_u64(0, static_cast<std::uint64_t>(sum[0])), static_cast<std::uint64_t>(sum[1]));
}

/// The register after the whole rounds of `bytes`, which it leaves out of them.
TESSERA_ROUNDS std::uint64_t by_rounds(std::span<const std::byte>& bytes, std::uint64_t sum) {
  const auto& f = folding.by_512;
  const Blocks far = {f[0], f[1], f[0], f[1]};
  for (; bytes.size() >= round_bytes; bytes = bytes.subspan(round_bytes)) {
    const auto* at = bytes.data();
    const auto* folds = at + 3 * lane;
    std::uint64_t second = 0, third = 0;
    Blocks a = {}, b = {};
    for (std::size_t line = 0; line < lane; line += 64) {
      for (std::size_t page = 0; page < 3 * lane; page += lane)
        __builtin_prefetch(at + round_bytes + page + line, 0, 2);
      for (const std::size_t next : {1024, 1088}) __builtin_prefetch(folds + next);
      for (std::size_t half = 0; half < 2; ++half, folds += 64) {
        a = moved(a, far, folds);
        b = moved(b, far, folds + 32);
        for (std::size_t i = line + 32 * half; i < line + 32 * half + 32; i += 8) {
          sum = _mm_crc32_u64(sum, word(at + i));
          second = _mm_crc32_u64(second, word(at + lane + i));
          third = _mm_crc32_u64(third, word(at + 2 * lane + i));
        }
      }
    }
    sum = over(leap_folded, static_cast<std::uint32_t>(joined(sum, second, third))) ^ sum_of(a, b);
  }
  return sum;
}

#undef TESSERA_ROUNDS
#undef TESSERA_PRODUCTS

#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes, std::uint32_t before) {
  std::uint32_t sum = ~before;
  const auto* at = bytes.data();
  std::size_t left = bytes.size();
  const auto byte = [](std::byte b) { return std::to_integer<std::uint32_t>(b); };
  for (; left >= 8; at += 8, left -= 8) {
    sum ^= byte(at[0]) | byte(at[1]) << 8 | byte(at[2]) << 16 | byte(at[3]) << 24;
    sum = slices[7][sum & 255] ^ slices[6][(sum >> 8) & 255] ^ slices[5][(sum >> 16) & 255] ^ slices[4][sum >> 24] ^
          slices[3][byte(at[4])] ^ slices[2][byte(at[5])] ^ slices[1][byte(at[6])] ^ slices[0][byte(at[7])];
  }
  for (; left > 0; ++at, --left) sum = (sum >> 8) ^ slices[0][(sum ^ byte(*at)) & 255];
  return ~sum;
}

std::uint32_t crc32c_by_lanes(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return by_instruction(bytes, before);
#endif
  return crc32c_by_table(bytes, before);
}

std::uint32_t crc32c_by_rounds(std::span<const std::byte> bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_rounds = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0 &&
                                 __builtin_cpu_supports("sse4.2") != 0;
  if (has_rounds) before = ~static_cast<std::uint32_t>(by_rounds(bytes, ~before));
#endif
  return crc32c_by_lanes(bytes, before);
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before) {
  if (!folds_crc_wide()) return crc32c_by_rounds(bytes, before);
  if (bytes.size() < least_wide_folded_bytes) return crc32c_by_lanes(bytes, before);
  const auto folded = fold_crc(bytes, ~before, folding);
  return crc32c_by_lanes(folded.rest, crc32c_by_lanes(folded.block, ~std::uint32_t{0}));
}

std::uint32_t crc32c(std::string_view bytes, std::uint32_t before) {
  return crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())), before);
}

std::string crc_text(std::uint32_t sum) {
  std::string out(8, '0');
  for (std::size_t digit = 8; digit-- > 0; sum >>= 4) out[digit] = "0123456789abcdef"[sum & 15];
  return out;
}

}  // namespace tessera
