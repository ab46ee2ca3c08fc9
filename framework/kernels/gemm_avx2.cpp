// Register tiles of 6 x 16 for AVX2 and FMA: 12 sums, two vectors of b and one broadcast of a use 15 of 16 registers.
// gemm_tiles.h defines the arguments of each function.
#include <immintrin.h>

#include "framework/kernels/gemm_tiles.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace tessera {
namespace {

constexpr int lanes = 8, tile_rows = 6, tile_vectors = 2;

/// A mask of the first `count` lanes (all if more, none if negative).
__m256i first_lanes(std::int64_t count) {
  const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count > lanes ? lanes : count < 0 ? 0 : static_cast<int>(count)), order);
}

/// R rows by J vectors; packed: a is a packed strip. Rows, columns and layout are template parameters, so that the sums
/// stay in registers.
template <int R, int J, bool packed>
void tile_of(const TileCall& t) {
  __m256 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) {
    _mm_prefetch(reinterpret_cast<const char*>(t.c + r * t.c_row), _MM_HINT_T0);
    UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_setzero_ps();
  }
  const float *a = t.a, *b = t.b;
  constexpr int line = 16;
  for (std::int64_t k = 0; k < t.depth;) {
    UNROLL for (int r = 0; r < R; ++r) {  // 16 k steps read one cache line of each row
      _mm_prefetch(reinterpret_cast<const char*>(t.next + (packed ? k * tile_rows + r * line : r * t.a_row + k)),
                   _MM_HINT_T0);
    }
    const std::int64_t end = t.depth - k < line ? t.depth : k + line;
    for (; k < end; ++k, a += packed ? tile_rows : 1, b += J * lanes) {
      __m256 v[J];
      UNROLL for (int j = 0; j < J; ++j) v[j] = _mm256_load_ps(b + j * lanes);
      UNROLL for (int r = 0; r < R; ++r) {
        const __m256 x = _mm256_broadcast_ss(packed ? a + r : a + r * t.a_row);
        UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_fmadd_ps(x, v[j], sum[r][j]);
      }
    }
  }
  const __m256i last = first_lanes(t.cols - (J - 1) * lanes);
  const bool whole = t.cols == J * lanes;
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const bool full = whole || j < J - 1;
      float* to = t.c + r * t.c_row + j * lanes;
      __m256 s = sum[r][j];
      if (t.start != nullptr) {
        const float* from = t.start + r * t.start_row + j * lanes;
        s = _mm256_add_ps(s, full ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, last));
      }
      if (full) {
        _mm256_storeu_ps(to, s);
      } else {
        _mm256_maskstore_ps(to, last, s);
      }
    }
  }
}

using Tile = void (*)(const TileCall&);

/// Selects the instantiation for `rows`.
template <int J, bool packed>
Tile tile_with(std::int64_t rows) {
  constexpr Tile by_rows[] = {tile_of<1, J, packed>, tile_of<2, J, packed>, tile_of<3, J, packed>,
                              tile_of<4, J, packed>, tile_of<5, J, packed>, tile_of<6, J, packed>};
  return by_rows[rows - 1];
}

void tile(const TileCall& t) {
  const bool packed = t.a_step != 1;
  if (t.cols > lanes) return (packed ? tile_with<2, true>(t.rows) : tile_with<2, false>(t.rows))(t);
  return (packed ? tile_with<1, true>(t.rows) : tile_with<1, false>(t.rows))(t);
}

/// Transposes an 8 x 8 block in three rounds that exchange 1, 2 and 4 floats.
void transpose(__m256 (&v)[lanes]) {
  __m256 w[lanes];
  UNROLL for (int i = 0; i < lanes; i += 2) {
    w[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
    w[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
  }
  UNROLL for (int i = 0; i < lanes; i += 4) {
    v[i] = _mm256_shuffle_ps(w[i], w[i + 2], 0x44);
    v[i + 1] = _mm256_shuffle_ps(w[i], w[i + 2], 0xee);
    v[i + 2] = _mm256_shuffle_ps(w[i + 1], w[i + 3], 0x44);
    v[i + 3] = _mm256_shuffle_ps(w[i + 1], w[i + 3], 0xee);
  }
  UNROLL for (int i = 0; i < 4; ++i) {
    w[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
    w[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
  }
  UNROLL for (int i = 0; i < lanes; ++i) v[i] = w[i];
}

/// One panel of pack_along: `width` columns, of which `cols` exist.
void pack_panel(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t width,
                float* dst) {
  for (std::int64_t j = 0; j < width; j += lanes) {  // 8 rows of src at a time, each read contiguously
    const float* rows = src + j * across;
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const std::int64_t steps = depth - k < lanes ? depth - k : lanes;
      const __m256i mask = first_lanes(steps);
      __m256 v[lanes];
      UNROLL for (int i = 0; i < lanes; ++i) {
        const float* row = rows + i * across + k;
        v[i] = j + i >= cols    ? _mm256_setzero_ps()
               : steps == lanes ? _mm256_loadu_ps(row)
                                : _mm256_maskload_ps(row, mask);
      }
      transpose(v);
      UNROLL for (int i = 0; i < lanes; ++i) {
        if (i < steps) _mm256_store_ps(dst + (k + i) * width + j, v[i]);
      }
    }
  }
}

void pack_along(const float* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                float* dst) {
  constexpr std::int64_t full = tile_vectors * lanes;
  for (; cols > 0; cols -= full, src += full * across, dst += panel) {
    pack_panel(src, across, depth, cols, cols > lanes ? full : lanes, dst);
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
        _mm256_store_ps(to + (k * tile_vectors + j) * lanes, _mm256_loadu_ps(from));
      }
    }
    to += k * (left > lanes ? tile_vectors * lanes : lanes);
    for (; left > 0; left -= lanes, from += lanes, to += lanes) {
      _mm256_store_ps(to, _mm256_maskload_ps(from, first_lanes(left)));
    }
  }
}

void pack_strips(const float* src, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const std::int64_t whole = rows / tile_rows;
  for (std::int64_t k = 0; k < depth; ++k) {
    const float* from = src + k * along;
    float* to = dst + k * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s, from += tile_rows) {
      _mm_storeu_ps(to + s * strip, _mm_loadu_ps(from));
      _mm_storel_pi(reinterpret_cast<__m64*>(to + s * strip + 4),
                    _mm_castsi128_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 4))));
    }
    for (std::int64_t r = 0; whole * tile_rows < rows && r < tile_rows; ++r) {
      to[whole * strip + r] = whole * tile_rows + r < rows ? from[r] : 0;
    }
  }
}

float sum_of_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// R rows of a against J rows of b from `col`. The lanes of each sum are added at the end.
template <int R, int J>
void dots_of(const DotsCall& t, std::int64_t col) {
  __m256 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_setzero_ps(); }
  const float* b = t.b + col * t.b_row;
  std::int64_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    __m256 v[J];
    UNROLL for (int j = 0; j < J; ++j) v[j] = _mm256_loadu_ps(b + j * t.b_row + k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_loadu_ps(t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_fmadd_ps(x, v[j], sum[r][j]);
    }
  }
  if (k < t.depth) {
    const __m256i mask = first_lanes(t.depth - k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_maskload_ps(t.a + r * t.a_row + k, mask);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] =
          _mm256_fmadd_ps(x, _mm256_maskload_ps(b + j * t.b_row + k, mask), sum[r][j]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const float start = t.start == nullptr ? 0 : t.start[r * t.start_row + col + j];
      t.c[r * t.c_row + col + j] = start + sum_of_lanes(sum[r][j]);
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

const TileKernels& tiles_avx2() {
  static constexpr TileKernels kernels = {tile_rows, tile_vectors * lanes, lanes,       256,         12,
                                          tile,      pack_along,           pack_across, pack_strips, dots};
  return kernels;
}

}  // namespace tessera
