// AVX-512: products of floats, and of 16-bit elements that are widened to floats where they are packed.
#include "framework/kernels/gemm_tile_avx512-inl.h"

namespace tessera::kernels {
namespace {

struct FloatSum {
  static __m512 add(__m512 sum, __m512 x, __m512 v) { return _mm512_fmadd_ps(x, v, sum); }
};

// Sixteen elements of one type as floats, as OfFloat.
struct OfBfloat16 {
  using Element = std::uint16_t;
  static __m512 widened(__m256i half) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
  }
  static __m256 widened(__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  }
  static __m512 all(const Element* at) { return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at))); }
  static __m512 some(__mmask16 mask, const Element* at) { return widened(_mm256_maskz_loadu_epi16(mask, at)); }
  static __m256 eight(const Element* at) { return widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
  static __m256 some_of_eight(__mmask8 mask, const Element* at) { return widened(_mm_maskz_loadu_epi16(mask, at)); }
};

struct OfFloat16 {
  using Element = std::uint16_t;
  static __m512 all(const Element* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static __m512 some(__mmask16 mask, const Element* at) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, at)); }
  static __m256 eight(const Element* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static __m256 some_of_eight(__mmask8 mask, const Element* at) {
    return _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, at));
  }
};

template <class Of>
void pack_across(const void* source, std::int64_t along, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                 float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(source);
  for (std::int64_t k = 0; k < depth; ++k, src += along) {
    const auto* from = src;
    float* to = dst;
    std::int64_t left = cols;
    for (; left >= tile_vectors * lanes; left -= tile_vectors * lanes, to += panel) {
      UNROLL for (int j = 0; j < tile_vectors; ++j, from += lanes) {
        fetch(from + ahead * along);
        _mm512_store_ps(to + (k * tile_vectors + j) * lanes, Of::all(from));
      }
    }
    to += k * width_of<tile_vectors>(left);
    for (; left > 0; left -= lanes, from += lanes, to += lanes) {
      _mm512_store_ps(to, Of::some(first_lanes(left), from));
    }
  }
}

template <class Of>
void pack_strips(const void* source, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(source);
  const std::int64_t whole = rows / tile_rows;
  const auto rest = static_cast<__mmask8>((1 << rows % tile_rows) - 1);
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2) {  // two k steps of a strip are one cache line
    const auto *even = src + k * along, *odd = even + along;
    float* to = dst + k * tile_rows;
    const auto line = [&](__m256 low, __m256 high) {
      _mm512_storeu_ps(to, _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
    };
    for (std::int64_t s = 0; s < whole; ++s, even += tile_rows, odd += tile_rows, to += strip) {
      fetch(even + ahead * along);
      fetch(odd + ahead * along);
      line(Of::eight(even), Of::eight(odd));
    }
    if (rest != 0) line(Of::some_of_eight(rest, even), Of::some_of_eight(rest, odd));
  }
  for (; k < depth; ++k) {
    const auto* from = src + k * along;
    float* to = dst + k * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s) _mm256_storeu_ps(to + s * strip, Of::eight(from + s * tile_rows));
    if (rest != 0) _mm256_storeu_ps(to + whole * strip, Of::some_of_eight(rest, from + whole * tile_rows));
  }
}

/// R rows of a against J rows of b, `apart` rows from one to the next, from `col` on. The lanes of each sum are added
/// at the end.
template <class Of, int R, int J>
void dots_of(const DotsCall& t, std::int64_t col, std::int64_t apart) {
  __m512 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_setzero_ps(); }
  const auto* b = static_cast<const typename Of::Element*>(t.b) + col * t.b_row;
  const std::int64_t next = apart * t.b_row;
  std::int64_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    __m512 v[J];
    UNROLL for (int j = 0; j < J; ++j) v[j] = Of::all(b + j * next + k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_loadu_ps(t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_fmadd_ps(x, v[j], sum[r][j]);
    }
  }
  if (k < t.depth) {
    const __mmask16 mask = first_lanes(t.depth - k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_maskz_loadu_ps(mask, t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_fmadd_ps(x, Of::some(mask, b + j * next + k), sum[r][j]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const float start = t.start == nullptr ? 0 : t.start[r * t.start_row + col + j * apart];
      t.c[r * t.c_row + col + j * apart] = start + _mm512_reduce_add_ps(sum[r][j]);
    }
  }
}

/// The rows of b that are read together are far apart: each of these streams goes on where it was, so that b comes from
/// memory as fast as memory can be read. Rows side by side make streams that end with each row, at half that rate.
template <class Of, int R>
void dots_with(const DotsCall& t) {
  constexpr int streams = R == 1 ? 2 : 4;
  const std::int64_t apart = t.cols / streams;
  for (std::int64_t col = 0; col < apart; ++col) dots_of<Of, R, streams>(t, col, apart);
  for (std::int64_t col = streams * apart; col < t.cols; ++col) dots_of<Of, R, 1>(t, col, 0);
}

template <class Of>
void dots(const DotsCall& t) {
  if (t.rows == 1) return dots_with<Of, 1>(t);
  if (t.rows == 2) return dots_with<Of, 2>(t);
  if (t.rows == 3) return dots_with<Of, 3>(t);
  dots_with<Of, 4>(t);
}

template <class Of>
void widen(const void* from, std::int64_t count, float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(from);
  for (; count >= lanes; count -= lanes, src += lanes, dst += lanes) _mm512_storeu_ps(dst, Of::all(src));
  if (count > 0) {
    const __mmask16 mask = first_lanes(count);
    _mm512_mask_storeu_ps(dst, mask, Of::some(mask, src));
  }
}

/// Integer rounding, the same bits as kernels/type_conversion.cpp: half the last kept place is added, less one if that
/// place is even; a NaN keeps its upper half and is made quiet.
void narrow_bfloat16(const float* src, std::int64_t count, void* to) {
  auto* dst = static_cast<std::uint16_t*>(to);
  const __m512i one = _mm512_set1_epi32(1), below_half = _mm512_set1_epi32(0x7fff), quiet = _mm512_set1_epi32(0x40);
  for (; count > 0; count -= lanes, src += lanes, dst += lanes) {
    const __mmask16 mask = first_lanes(count);
    const __m512 value = _mm512_maskz_loadu_ps(mask, src);
    const __m512i word = _mm512_castps_si512(value), upper = _mm512_srli_epi32(word, 16);
    const __m512i rounded =
        _mm512_srli_epi32(_mm512_add_epi32(word, _mm512_add_epi32(below_half, _mm512_and_si512(upper, one))), 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    _mm256_mask_storeu_epi16(dst, mask,
                             _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, nan, _mm512_or_si512(upper, quiet))));
  }
}

void narrow_float16(const float* src, std::int64_t count, void* to) {
  auto* dst = static_cast<std::uint16_t*>(to);
  for (; count > 0; count -= lanes, src += lanes, dst += lanes) {
    const __mmask16 mask = first_lanes(count);
    _mm256_mask_storeu_epi16(dst, mask, _mm512_cvtps_ph(_mm512_maskz_loadu_ps(mask, src), _MM_FROUND_TO_NEAREST_INT));
  }
}

template <class Of>
constexpr Packing packing(decltype(Packing::widen) wide, decltype(Packing::narrow) narrow) {
  return {.along = pack_along<Of, tile_vectors>,
          .across = pack_across<Of>,
          .strips = pack_strips<Of>,
          .widen = wide,
          .narrow = narrow,
          .dots = dots<Of>};
}

}  // namespace

const TileKernels& tiles_avx512() {
  static constexpr TileKernels kernels = {.rows = tile_rows,
                                          .cols = tile_vectors * lanes,
                                          .vector = lanes,
                                          .depth = 384,
                                          .panels = 4,
                                          .elements = 1,
                                          .tile = tile<FloatSum>,
                                          .float32 = packing<OfFloat>(nullptr, nullptr),
                                          .bfloat16 = packing<OfBfloat16>(widen<OfBfloat16>, narrow_bfloat16),
                                          .float16 = packing<OfFloat16>(widen<OfFloat16>, narrow_float16)};
  return kernels;
}

}  // namespace tessera::kernels
