#pragma once

// Packing of bfloat16 pairs with AVX-512, for the sets that multiply them. Included once by each source that is
// compiled for such a set; everything has internal linkage.

#include "framework/kernels/gemm_vectors_avx512-inl.h"

namespace tessera::kernels {
namespace {

/// Words of `lower` (elements of an even k) and `upper` (of the next k): one pair in each lane.
inline __m512 pairs(__m256i lower, __m256i upper) {
  return _mm512_castsi512_ps(
      _mm512_or_si512(_mm512_cvtepu16_epi32(lower), _mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16)));
}

/// Lanes of the upper halves of word k: none if the number of elements of k is odd and this is the last word.
inline __mmask16 upper_half(std::int64_t k, std::int64_t elements) {
  return 2 * k + 1 < elements ? __mmask16(0xffff) : __mmask16(0);
}

/// Where k is the inner index, pairs are words in memory already, and packing them is packing floats.
template <int vectors>
void pack_pairs_along(const void* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                      float* dst) {
  pack_along<OfFloat, vectors>(src, across / 2, depth, cols, panel, dst);
}

template <int vectors>
void pack_pairs_across(const void* src, std::int64_t along, std::int64_t elements, std::int64_t cols,
                       std::int64_t panel, float* dst) {
  const auto* even = static_cast<const std::uint16_t*>(src);
  for (std::int64_t k = 0; 2 * k < elements; ++k, even += 2 * along) {
    const std::uint16_t *low = even, *high = even + along;
    const __mmask16 upper = upper_half(k, elements);
    float* to = dst;
    std::int64_t left = cols;
    for (; left >= vectors * lanes; left -= vectors * lanes, to += panel) {
      UNROLL for (int j = 0; j < vectors; ++j, low += lanes, high += lanes) {
        fetch(low + ahead * along);
        fetch(high + ahead * along);
        _mm512_store_ps(to + (k * vectors + j) * lanes, pairs(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(low)),
                                                              _mm256_maskz_loadu_epi16(upper, high)));
      }
    }
    to += k * width_of<vectors>(left);
    for (; left > 0; left -= lanes, low += lanes, high += lanes, to += lanes) {
      const __mmask16 mask = first_lanes(left);
      _mm512_store_ps(to, pairs(_mm256_maskz_loadu_epi16(mask, low), _mm256_maskz_loadu_epi16(mask & upper, high)));
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
