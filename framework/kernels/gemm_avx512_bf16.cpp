// AVX512-BF16: products of bfloat16 pairs, summed in fp32.
#include "framework/kernels/gemm_pairs_avx512-inl.h"
#include "framework/kernels/gemm_tile_avx512-inl.h"

namespace tessera::kernels {
namespace {

struct PairSum {
  static __m512 add(__m512 sum, __m512 x, __m512 v) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(v));
  }
};

/// Eight words, as the function of gemm_pairs_avx512-inl.h.
__m256 pairs(__m128i lower, __m128i upper) {
  return _mm256_castsi256_ps(
      _mm256_or_si256(_mm256_cvtepu16_epi32(lower), _mm256_slli_epi32(_mm256_cvtepu16_epi32(upper), 16)));
}

void pack_strips(const void* src, std::int64_t along, std::int64_t elements, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const auto* even = static_cast<const std::uint16_t*>(src);
  const std::int64_t whole = rows / tile_rows;
  const auto rest = static_cast<__mmask8>((1 << rows % tile_rows) - 1);
  for (std::int64_t k = 0; 2 * k < elements; ++k, even += 2 * along) {
    const std::uint16_t *low = even, *high = even + along;
    const auto upper = static_cast<__mmask8>(upper_half(k, elements));
    float* to = dst + k * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s, low += tile_rows, high += tile_rows, to += strip) {
      fetch(low + ahead * along);
      fetch(high + ahead * along);
      _mm256_storeu_ps(
          to, pairs(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)), _mm_maskz_loadu_epi16(upper, high)));
    }
    if (rest != 0)
      _mm256_storeu_ps(to, pairs(_mm_maskz_loadu_epi16(rest, low), _mm_maskz_loadu_epi16(rest & upper, high)));
  }
}

}  // namespace

const TileKernels& tiles_avx512_bf16() {
  static const TileKernels kernels = [] {
    const TileKernels& floats = tiles_avx512();
    Packing packing = floats.bfloat16;
    packing.along = pack_pairs_along<tile_vectors>;
    packing.across = pack_pairs_across<tile_vectors>;
    packing.strips = pack_strips;
    return TileKernels{.rows = tile_rows,
                       .cols = tile_vectors * lanes,
                       .vector = lanes,
                       .depth = floats.depth,
                       .panels = floats.panels,
                       .elements = 2,
                       .tile = tile<PairSum>,
                       .float32 = {},
                       .bfloat16 = packing,
                       .float16 = {}};
  }();
  return kernels;
}

}  // namespace tessera::kernels
