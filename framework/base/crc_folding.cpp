#include "framework/base/crc_folding.h"

#include <cstring>

namespace tessera {

// Blocks of 16 bytes are polynomials; one that lies n bits before another is added to it after multiplication by x^n
// modulo the polynomial, its two halves by x^(n + 64) and x^n. Several lanes hide the latency of the instruction. The
// block that remains has the same remainder as all of them. Source: V. Gopal et al., "Fast CRC Computation for Generic
// Polynomials Using PCLMULQDQ Instruction", Intel 2009.

#if defined(__x86_64__)

namespace {

using Block = long long __attribute__((vector_size(16)));  ///< a polynomial of degree 127

Block block_at(const std::byte* at) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  return block;
}

Block block_of(const CrcFolding::Factors& factors) {
  const Block block = {factors[0], factors[1]};
  return block;
}

__attribute__((target("pclmul"))) Block folded(Block sum, Block factors, Block next) {
  return __builtin_ia32_pclmulqdq128(sum, factors, 0x00) ^ __builtin_ia32_pclmulqdq128(sum, factors, 0x11) ^ next;
}

/// Adds whole blocks of the rest.
__attribute__((target("pclmul"))) FoldedCrc with_rest(Block sum, std::span<const std::byte> rest, Block near) {
  for (; rest.size() >= sizeof sum; rest = rest.subspan(sizeof sum)) sum = folded(sum, near, block_at(rest.data()));
  FoldedCrc out{{}, rest};
  std::memcpy(out.block.data(), &sum, sizeof sum);
  return out;
}

/// Four lanes of 16 bytes.
__attribute__((target("pclmul"))) FoldedCrc fold_narrow(std::span<const std::byte> bytes, std::uint32_t sum,
                                                        const CrcFolding& folding) {
  const auto* at = bytes.data();
  Block a = block_at(at) ^ Block { static_cast<long long>(sum), 0 };
  Block b = block_at(at + 16), c = block_at(at + 32), d = block_at(at + 48);
  const auto far = block_of(folding.by_512), near = block_of(folding.by_128);
  for (bytes = bytes.subspan(64); bytes.size() >= 64; bytes = bytes.subspan(64)) {
    at = bytes.data();
    a = folded(a, far, block_at(at));
    b = folded(b, far, block_at(at + 16));
    c = folded(c, far, block_at(at + 32));
    d = folded(d, far, block_at(at + 48));
  }
  return with_rest(folded(folded(folded(a, near, b), near, c), near, d), bytes, near);
}

using Wide = long long __attribute__((vector_size(64)));  ///< four blocks

#define TESSERA_WIDE_CRC __attribute__((target("avx512f,vpclmulqdq,pclmul")))
// The compilers' names of the instruction: kernels/ alone includes their headers.
#if defined(__clang__)
#define TESSERA_WIDE_PRODUCT __builtin_ia32_pclmulqdq512
#else
#define TESSERA_WIDE_PRODUCT __builtin_ia32_vpclmulqdq_v8di
#endif

TESSERA_WIDE_CRC inline Wide wide_at(const std::byte* at) {
  Wide wide;
  std::memcpy(&wide, at, sizeof wide);
  return wide;
}

/// The same factors for each of four blocks.
TESSERA_WIDE_CRC inline Wide wide_of(const CrcFolding::Factors& f) {
  return Wide{f[0], f[1], f[0], f[1], f[0], f[1], f[0], f[1]};
}

TESSERA_WIDE_CRC inline Wide folded_wide(Wide sum, Wide factors, Wide next) {
  return TESSERA_WIDE_PRODUCT(sum, factors, 0x00) ^ TESSERA_WIDE_PRODUCT(sum, factors, 0x11) ^ next;
}

/// Four lanes of 64 bytes.
TESSERA_WIDE_CRC FoldedCrc fold_wide(std::span<const std::byte> bytes, std::uint32_t sum, const CrcFolding& folding) {
  const auto* at = bytes.data();
  Wide a = wide_at(at) ^ Wide { static_cast<long long>(sum) };
  Wide b = wide_at(at + 64), c = wide_at(at + 128), d = wide_at(at + 192);
  const auto far = wide_of(folding.by_2048), middle = wide_of(folding.by_512);
  for (bytes = bytes.subspan(256); bytes.size() >= 256; bytes = bytes.subspan(256)) {
    at = bytes.data();
    a = folded_wide(a, far, wide_at(at));
    b = folded_wide(b, far, wide_at(at + 64));
    c = folded_wide(c, far, wide_at(at + 128));
    d = folded_wide(d, far, wide_at(at + 192));
  }
  a = folded_wide(folded_wide(folded_wide(a, middle, b), middle, c), middle, d);
  std::array<std::byte, 64> four;
  std::memcpy(four.data(), &a, sizeof a);
  const auto near = block_of(folding.by_128);
  auto last = block_at(four.data());
  for (const std::size_t next : {16, 32, 48}) last = folded(last, near, block_at(four.data() + next));
  return with_rest(last, bytes, near);
}

#undef TESSERA_WIDE_CRC
#undef TESSERA_WIDE_PRODUCT

}  // namespace

bool folds_crc() {
  static const bool has = __builtin_cpu_supports("pclmul") != 0;
  return has;
}

bool folds_crc_wide() {
  static const bool has =
      folds_crc() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0;
  return has;
}

FoldedCrc fold_crc(std::span<const std::byte> bytes, std::uint32_t sum, const CrcFolding& folding) {
  return folds_crc_wide() && bytes.size() >= least_wide_folded_bytes ? fold_wide(bytes, sum, folding)
                                                                     : fold_narrow(bytes, sum, folding);
}

#else

bool folds_crc() { return false; }
bool folds_crc_wide() { return false; }
FoldedCrc fold_crc(std::span<const std::byte> bytes, std::uint32_t, const CrcFolding&) { return {{}, bytes}; }

#endif

}  // namespace tessera
