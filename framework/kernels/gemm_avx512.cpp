// Register tiles of 8 x 48 for AVX-512: 24 sums, three vectors of b and one broadcast of a use 28 of 32 registers.
// gemm_tiles.h defines the arguments of each function; gemm_avx2.cpp has the same structure with other sizes.
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

namespace tessera {
namespace {

constexpr int lanes = 16, tile_rows = 8, tile_vectors = 3;
constexpr std::int64_t ahead = 16;  // k steps that packing prefetches

void fetch(const float* at) { _mm_prefetch(reinterpret_cast<const char*>(at), _MM_HINT_T0); }

/// A mask of the first `count` lanes (all if more).
__mmask16 first_lanes(std::int64_t count) { return static_cast<__mmask16>(count >= lanes ? 0xffff : (1 << count) - 1); }

/// R rows by J vectors; packed: a is a packed strip. Rows, columns and layout are template parameters, so that the sums
/// stay in registers.
template <int R, int J, bool packed>
void tile_of(const TileCall& t) {
  __m512 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      sum[r][j] = _mm512_setzero_ps();
      fetch(t.c + r * t.c_row + j * lanes);
    }
  }
  const float *a = t.a, *b = t.b;
  for (std::int64_t k = 0; k < t.depth;) {
    UNROLL for (int r = 0; r < R; ++r) {  // 16 k steps read one cache line of each row
      fetch(t.next + (packed ? k * tile_rows + r * lanes : r * t.a_row + k));
    }
    const std::int64_t end = t.depth - k < lanes ? t.depth : k + lanes;
    for (; k < end; ++k, a += packed ? tile_rows : 1, b += J * lanes) {
      __m512 v[J];
      UNROLL for (int j = 0; j < J; ++j) v[j] = _mm512_load_ps(b + j * lanes);
      UNROLL for (int r = 0; r < R; ++r) {
        const __m512 x = _mm512_set1_ps(packed ? a[r] : a[r * t.a_row]);
        UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_fmadd_ps(x, v[j], sum[r][j]);
      }
    }
  }
  const __mmask16 last = first_lanes(t.cols - (J - 1) * lanes);
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const __mmask16 mask = j < J - 1 ? __mmask16(0xffff) : last;
      __m512 s = sum[r][j];
      if (t.start != nullptr) s = _mm512_add_ps(s, _mm512_maskz_loadu_ps(mask, t.start + r * t.start_row + j * lanes));
      _mm512_mask_storeu_ps(t.c + r * t.c_row + j * lanes, mask, s);
    }
  }
}

using Tile = void (*)(const TileCall&);

/// Selects the instantiation for `rows`.
template <int J, bool packed>
Tile tile_with(std::int64_t rows) {
  constexpr Tile by_rows[] = {tile_of<1, J, packed>, tile_of<2, J, packed>, tile_of<3, J, packed>,
                              tile_of<4, J, packed>, tile_of<5, J, packed>, tile_of<6, J, packed>,
                              tile_of<7, J, packed>, tile_of<8, J, packed>};
  return by_rows[rows - 1];
}

void tile(const TileCall& t) {
  const bool packed = t.a_step != 1;
  const std::int64_t vectors = (t.cols + lanes - 1) / lanes;
  if (vectors == 3) return (packed ? tile_with<3, true>(t.rows) : tile_with<3, false>(t.rows))(t);
  if (vectors == 2) return (packed ? tile_with<2, true>(t.rows) : tile_with<2, false>(t.rows))(t);
  return (packed ? tile_with<1, true>(t.rows) : tile_with<1, false>(t.rows))(t);
}

/// Transposes a 16 x 16 block in four rounds that exchange 1, 2, 4 and 8 floats.
void transpose(__m512 (&v)[lanes]) {
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

/// One panel of pack_along: `width` columns, of which `cols` exist.
void pack_panel(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t width,
                float* dst) {
  for (std::int64_t j = 0; j < width; j += lanes) {  // 16 rows of src at a time, each read contiguously
    const float* rows = src + j * across;
    const std::int64_t count = cols - j;
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const std::int64_t steps = depth - k < lanes ? depth - k : lanes;
      float* to = dst + k * width + j;
      __m512 v[lanes];
      if (count >= lanes && steps == lanes) {
        UNROLL for (int i = 0; i < lanes; ++i) v[i] = _mm512_loadu_ps(rows + i * across + k);
        transpose(v);
        UNROLL for (int i = 0; i < lanes; ++i) _mm512_store_ps(to + i * width, v[i]);
        continue;
      }
      const __mmask16 mask = first_lanes(steps);
      UNROLL for (int i = 0; i < lanes; ++i) {
        v[i] = i < count ? _mm512_maskz_loadu_ps(mask, rows + i * across + k) : _mm512_setzero_ps();
      }
      transpose(v);
      UNROLL for (int i = 0; i < lanes; ++i) {
        if (i < steps) _mm512_store_ps(to + i * width, v[i]);
      }
    }
  }
}

/// Width of the panel that holds up to `cols` columns: whole vectors, at most a full tile.
std::int64_t width_of(std::int64_t cols) {
  return cols >= tile_vectors * lanes ? tile_vectors * lanes : (cols + lanes - 1) / lanes * lanes;
}

void pack_along(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                float* dst) {
  for (; cols > 0; cols -= tile_vectors * lanes, src += tile_vectors * lanes * across, dst += panel) {
    pack_panel(src, across, depth, cols, width_of(cols), dst);
  }
}

void pack_across(const float* src, std::int64_t along, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                 float* dst) {
  for (std::int64_t k = 0; k < depth; ++k, src += along) {
    const float* from = src;
    float* to = dst;
    std::int64_t left = cols;
    for (; left >= tile_vectors * lanes; left -= tile_vectors * lanes, to += panel) {
      UNROLL for (int j = 0; j < tile_vectors; ++j, from += lanes) {
        fetch(from + ahead * along);
        _mm512_store_ps(to + (k * tile_vectors + j) * lanes, _mm512_loadu_ps(from));
      }
    }
    to += k * width_of(left);
    for (; left > 0; left -= lanes, from += lanes, to += lanes) {
      _mm512_store_ps(to, _mm512_maskz_loadu_ps(first_lanes(left), from));
    }
  }
}

void pack_strips(const float* src, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const std::int64_t whole = rows / tile_rows;
  const auto rest = static_cast<__mmask8>((1 << rows % tile_rows) - 1);
  std::int64_t k = 0;
  for (; k + 2 <= depth; k += 2) {  // two k steps of a strip are one cache line
    const float *even = src + k * along, *odd = even + along;
    float* to = dst + k * tile_rows;
    const auto line = [&](__m256 low, __m256 high) {
      _mm512_storeu_ps(to, _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1));
    };
    for (std::int64_t s = 0; s < whole; ++s, even += tile_rows, odd += tile_rows, to += strip) {
      fetch(even + ahead * along);
      fetch(odd + ahead * along);
      line(_mm256_loadu_ps(even), _mm256_loadu_ps(odd));
    }
    if (rest != 0) line(_mm256_maskz_loadu_ps(rest, even), _mm256_maskz_loadu_ps(rest, odd));
  }
  for (; k < depth; ++k) {
    const float* from = src + k * along;
    float* to = dst + k * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s) _mm256_storeu_ps(to + s * strip, _mm256_loadu_ps(from + s * tile_rows));
    if (rest != 0) _mm256_storeu_ps(to + whole * strip, _mm256_maskz_loadu_ps(rest, from + whole * tile_rows));
  }
}

/// R rows of a against J rows of b from `col`. The lanes of each sum are added at the end.
template <int R, int J>
void dots_of(const DotsCall& t, std::int64_t col) {
  __m512 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_setzero_ps(); }
  const float* b = t.b + col * t.b_row;
  std::int64_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    __m512 v[J];
    UNROLL for (int j = 0; j < J; ++j) v[j] = _mm512_loadu_ps(b + j * t.b_row + k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_loadu_ps(t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm512_fmadd_ps(x, v[j], sum[r][j]);
    }
  }
  if (k < t.depth) {
    const __mmask16 mask = first_lanes(t.depth - k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_maskz_loadu_ps(mask, t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] =
          _mm512_fmadd_ps(x, _mm512_maskz_loadu_ps(mask, b + j * t.b_row + k), sum[r][j]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const float start = t.start == nullptr ? 0 : t.start[r * t.start_row + col + j];
      t.c[r * t.c_row + col + j] = start + _mm512_reduce_add_ps(sum[r][j]);
    }
  }
}

template <int R>
void dots_with(const DotsCall& t) {
  std::int64_t col = 0;
  for (; col + 4 <= t.cols; col += 4) dots_of<R, 4>(t, col);
  for (; col < t.cols; ++col) dots_of<R, 1>(t, col);
}

void dots(const DotsCall& t) {
  if (t.rows == 1) return dots_with<1>(t);
  if (t.rows == 2) return dots_with<2>(t);
  if (t.rows == 3) return dots_with<3>(t);
  dots_with<4>(t);
}

}  // namespace

const TileKernels& tiles_avx512() {
  static constexpr TileKernels kernels = {tile_rows, tile_vectors * lanes, lanes,       384,         4,
                                          tile,      pack_along,           pack_across, pack_strips, dots};
  return kernels;
}

}  // namespace tessera
