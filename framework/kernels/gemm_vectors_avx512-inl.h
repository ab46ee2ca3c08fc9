#pragma once

// Vectors of 16 words for AVX-512: what its register tiles and their packing share. Included once by each source that
// is compiled for AVX-512 or for a superset; everything has internal linkage. gemm_tiles.h defines words, strips and
// panels.

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // g++ 12 warns of _mm512_undefined_ps in its own header
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

#include "framework/kernels/gemm_tiles.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace tessera::kernels {
namespace {

constexpr int lanes = 16;
constexpr std::int64_t ahead = 16;  // k steps that packing prefetches

inline void fetch(const void* at) { _mm_prefetch(static_cast<const char*>(at), _MM_HINT_T0); }

/// A mask of the first `count` lanes (all if more).
inline __mmask16 first_lanes(std::int64_t count) {
  return static_cast<__mmask16>(count >= lanes ? 0xffff : (1 << count) - 1);
}

/// Width of the panel that holds up to `cols` columns: whole vectors, at most `vectors` of them.
template <int vectors>
inline std::int64_t width_of(std::int64_t cols) {
  return cols >= vectors * lanes ? vectors * lanes : (cols + lanes - 1) / lanes * lanes;
}

/// Transposes a 16 x 16 block in four rounds that exchange 1, 2, 4 and 8 words.
inline void transpose(__m512 (&v)[lanes]) {
  __m512 w[lanes];
  UNROLL for (int i = 0; i < lanes; i += 2) {
    w[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
    w[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
  }
  UNROLL for (int i = 0; i < lanes; i += 4) {
    const auto pair = [&](int a, int b, bool high) {
      const __m512d x = _mm512_castps_pd(w[a]), y = _mm512_castps_pd(w[b]);
      return _mm512_castpd_ps(high ? _mm512_unpackhi_pd(x, y) : _mm512_unpacklo_pd(x, y));
    };
    v[i] = pair(i, i + 2, false);
    v[i + 1] = pair(i, i + 2, true);
    v[i + 2] = pair(i + 1, i + 3, false);
    v[i + 3] = pair(i + 1, i + 3, true);
  }
  UNROLL for (int i = 0; i < 4; ++i) {
    w[i] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88);
    w[i + 4] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd);
    w[i + 8] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88);
    w[i + 12] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xdd);
  }
  UNROLL for (int i = 0; i < 8; ++i) {
    v[i] = _mm512_shuffle_f32x4(w[i], w[i + 8], 0x88);
    v[i + 8] = _mm512_shuffle_f32x4(w[i], w[i + 8], 0xdd);
  }
}

/// Sixteen floats, or words; `some` reads only the lanes of the mask and gives zero in the others.
struct OfFloat {
  using Element = float;
  static __m512 all(const float* at) { return _mm512_loadu_ps(at); }
  static __m512 some(__mmask16 mask, const float* at) { return _mm512_maskz_loadu_ps(mask, at); }
  static __m256 eight(const float* at) { return _mm256_loadu_ps(at); }
  static __m256 some_of_eight(__mmask8 mask, const float* at) { return _mm256_maskz_loadu_ps(mask, at); }
};

/// One panel of pack_along: `width` columns, of which `cols` exist.
template <class Of>
void pack_panel(const typename Of::Element* src, std::int64_t across, std::int64_t depth, std::int64_t cols,
                std::int64_t width, float* dst) {
  for (std::int64_t j = 0; j < width; j += lanes) {  // 16 rows of src at a time, each read contiguously
    const auto* rows = src + j * across;
    const std::int64_t count = cols - j;
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const std::int64_t steps = depth - k < lanes ? depth - k : lanes;
      float* to = dst + k * width + j;
      __m512 v[lanes];
      if (count >= lanes && steps == lanes) {
        UNROLL for (int i = 0; i < lanes; ++i) v[i] = Of::all(rows + i * across + k);
        transpose(v);
        UNROLL for (int i = 0; i < lanes; ++i) _mm512_store_ps(to + i * width, v[i]);
        continue;
      }
      const __mmask16 mask = first_lanes(steps);
      UNROLL for (int i = 0; i < lanes; ++i) {
        v[i] = i < count ? Of::some(mask, rows + i * across + k) : _mm512_setzero_ps();
      }
      transpose(v);
      UNROLL for (int i = 0; i < lanes; ++i) {
        if (i < steps) _mm512_store_ps(to + i * width, v[i]);
      }
    }
  }
}

template <class Of, int vectors>
void pack_along(const void* from, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(from);
  for (; cols > 0; cols -= vectors * lanes, src += vectors * lanes * across, dst += panel) {
    pack_panel<Of>(src, across, depth, cols, width_of<vectors>(cols), dst);
  }
}

}  // namespace
}  // namespace tessera::kernels
