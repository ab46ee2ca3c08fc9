// Register tiles of 8 x 48 for AVX-512: 24 sums, three vectors of b and one broadcast of a use 28 of 32 registers.
// Included once by each source that is compiled for AVX-512 or for a superset; everything has internal linkage. The
// including source defines what a multiply-add of two vectors of words is. gemm_tiles.h defines the arguments.

#include "framework/kernels/gemm_vectors_avx512-inl.h"

namespace tessera::kernels {
namespace {

constexpr int tile_rows = 8, tile_vectors = 3;

/// R rows by J vectors; packed: a is a packed strip. Rows, columns and layout are template parameters, so that the sums
/// stay in registers. Sum::add(sum, x, v) is sum + x v for vectors of words.
template <class Sum, int R, int J, bool packed>
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
        UNROLL for (int j = 0; j < J; ++j) sum[r][j] = Sum::add(sum[r][j], x, v[j]);
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
template <class Sum, int J, bool packed>
Tile tile_with(std::int64_t rows) {
  constexpr Tile by_rows[] = {tile_of<Sum, 1, J, packed>, tile_of<Sum, 2, J, packed>, tile_of<Sum, 3, J, packed>,
                              tile_of<Sum, 4, J, packed>, tile_of<Sum, 5, J, packed>, tile_of<Sum, 6, J, packed>,
                              tile_of<Sum, 7, J, packed>, tile_of<Sum, 8, J, packed>};
  return by_rows[rows - 1];
}

template <class Sum>
void tile(const TileCall& t) {
  const bool packed = t.a_step != 1;
  const std::int64_t vectors = (t.cols + lanes - 1) / lanes;
  if (vectors == 3) return (packed ? tile_with<Sum, 3, true>(t.rows) : tile_with<Sum, 3, false>(t.rows))(t);
  if (vectors == 2) return (packed ? tile_with<Sum, 2, true>(t.rows) : tile_with<Sum, 2, false>(t.rows))(t);
  return (packed ? tile_with<Sum, 1, true>(t.rows) : tile_with<Sum, 1, false>(t.rows))(t);
}

}  // namespace
}  // namespace tessera::kernels
