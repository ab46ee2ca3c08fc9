// Register tiles of 4 x 24 for AVX2 and FMA: 12 sums, three vectors of b and one broadcast of a use all 16 registers.
// 12 multiply-adds take 7 loads, one fewer than in tiles of 6 x 16: where another thread shares the core (Zen 3), which
// leaves half of the instructions of each cycle, tiles in L1 ran at .86 instead of .79 of the multiply-add rate.
// 16-bit elements are widened to floats where they are packed. gemm_tiles.h defines the arguments of each function.
#include <immintrin.h>

#include "framework/kernels/gemm_tiles.h"

#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

namespace tessera::kernels {
namespace {

constexpr int lanes = 8, tile_rows = 4, tile_vectors = 3;

/// A mask of the first `count` lanes (all if more, none if negative).
__m256i first_lanes(std::int64_t count) {
  const __m256i order = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(count > lanes ? lanes : count < 0 ? 0 : static_cast<int>(count)), order);
}

// Eight elements of one type as floats; `some` reads only the first `count` of them (all if more) and gives zero in the
// other lanes; `four` reads no more than four elements.
struct OfFloat {
  using Element = float;
  static __m256 all(const float* at) { return _mm256_loadu_ps(at); }
  static __m256 some(std::int64_t count, const float* at) { return _mm256_maskload_ps(at, first_lanes(count)); }
  static __m128 four(const float* at) { return _mm_loadu_ps(at); }
  static float one(float value) { return value; }
};

/// The first `count` of eight 16-bit elements, by way of the stack: AVX2 has no masked load of that size.
__m128i some_halves(std::int64_t count, const std::uint16_t* at) {
  alignas(16) std::uint16_t copy[lanes] = {};
  for (int i = 0; i < lanes && i < count; ++i) copy[i] = at[i];
  return _mm_load_si128(reinterpret_cast<const __m128i*>(copy));
}

/// Sixteen-bit elements; Widen turns eight of them into floats.
template <class Widen>
struct OfHalf {
  using Element = std::uint16_t;
  static __m256 all(const Element* at) { return Widen::eight(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at))); }
  static __m256 some(std::int64_t count, const Element* at) {
    return count >= lanes ? all(at) : Widen::eight(some_halves(count, at));
  }
  static __m128 four(const Element* at) {
    return _mm256_castps256_ps128(Widen::eight(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at))));
  }
  static float one(Element value) { return _mm256_cvtss_f32(Widen::eight(_mm_cvtsi32_si128(value))); }
};

struct WidenBfloat16 {
  static __m256 eight(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
};
struct WidenFloat16 {
  static __m256 eight(__m128i halves) { return _mm256_cvtph_ps(halves); }
};
using OfBfloat16 = OfHalf<WidenBfloat16>;
using OfFloat16 = OfHalf<WidenFloat16>;

// Sixteen k steps of the full tile, without a loop: its integer instructions would share two ports with multiply-adds
// on Intel's processors. In assembly, because compilers move sums between registers, and some to the stack, when they
// unroll the same intrinsics. Vectors of b are in ymm12 to ymm14, an element of a in ymm15.
#define MULTIPLY_ROW(a, first, second, third) \
  "vbroadcastss " a                           \
  ", %%ymm15\n"                               \
  "vfmadd231ps %%ymm12, %%ymm15, %[" first    \
  "]\n"                                       \
  "vfmadd231ps %%ymm13, %%ymm15, %[" second   \
  "]\n"                                       \
  "vfmadd231ps %%ymm14, %%ymm15, %[" third "]\n"
#define LOAD_B(k)        \
  "vmovaps 96*" #k       \
  "(%[b]), %%ymm12\n"    \
  "vmovaps 96*" #k       \
  "+32(%[b]), %%ymm13\n" \
  "vmovaps 96*" #k "+64(%[b]), %%ymm14\n"
#define STEP_OF_STRIP(k)                              \
  LOAD_B(k)                                           \
  MULTIPLY_ROW("16*" #k "(%[a])", "s0", "s1", "s2")   \
  MULTIPLY_ROW("16*" #k "+4(%[a])", "s3", "s4", "s5") \
  MULTIPLY_ROW("16*" #k "+8(%[a])", "s6", "s7", "s8") MULTIPLY_ROW("16*" #k "+12(%[a])", "s9", "s10", "s11")
#define STEP_OF_ROWS(k)                                     \
  LOAD_B(k)                                                 \
  MULTIPLY_ROW("4*" #k "(%[a])", "s0", "s1", "s2")          \
  MULTIPLY_ROW("4*" #k "(%[a],%[row])", "s3", "s4", "s5")   \
  MULTIPLY_ROW("4*" #k "(%[a],%[row],2)", "s6", "s7", "s8") \
  MULTIPLY_ROW("4*" #k "(%[a3])", "s9", "s10", "s11")
#define SIXTEEN(STEP) \
  STEP(0)             \
  STEP(1)             \
  STEP(2) STEP(3) STEP(4) STEP(5) STEP(6) STEP(7) STEP(8) STEP(9) STEP(10) STEP(11) STEP(12) STEP(13) STEP(14) STEP(15)
#define SUMS                                                                                                        \
  [s0] "+x"(sum[0][0]), [s1] "+x"(sum[0][1]), [s2] "+x"(sum[0][2]), [s3] "+x"(sum[1][0]), [s4] "+x"(sum[1][1]),     \
      [s5] "+x"(sum[1][2]), [s6] "+x"(sum[2][0]), [s7] "+x"(sum[2][1]), [s8] "+x"(sum[2][2]), [s9] "+x"(sum[3][0]), \
      [s10] "+x"(sum[3][1]), [s11] "+x"(sum[3][2])

constexpr int line = 16;  ///< floats of a cache line, and k steps of sixteen_steps()

template <bool packed>
__attribute__((always_inline)) inline void sixteen_steps(const float* a, std::int64_t a_row, const float* b,
                                                         __m256 (&sum)[tile_rows][tile_vectors]) {
  if constexpr (packed)
    asm volatile(SIXTEEN(STEP_OF_STRIP) : SUMS : [a] "r"(a), [b] "r"(b) : "memory", "xmm12", "xmm13", "xmm14", "xmm15");
  else
    asm volatile(SIXTEEN(STEP_OF_ROWS)
                 : SUMS
                 : [a] "r"(a), [a3] "r"(a + 3 * a_row), [row] "r"(4 * a_row), [b] "r"(b)
                 : "memory", "xmm12", "xmm13", "xmm14", "xmm15");
}

/// Adds `start` to the sums unless it is null, and stores them; `Row` reads and writes the vectors of a row.
template <class Row, int R, int J>
__attribute__((always_inline)) inline void finish(const TileCall& t, __m256 (&sum)[R][J], Row row) {
  if (t.start != nullptr) {
    UNROLL for (int r = 0; r < R; ++r) {
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] =
          _mm256_add_ps(sum[r][j], row.load(t.start + r * t.start_row + j * lanes, j));
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) row.store(t.c + r * t.c_row + j * lanes, j, sum[r][j]);
  }
}

struct WholeRow {
  static __m256 load(const float* at, int) { return _mm256_loadu_ps(at); }
  static void store(float* at, int, __m256 value) { _mm256_storeu_ps(at, value); }
};

/// The last of J vectors has only the lanes of `mask`.
template <int J>
struct PartOfRow {
  __m256i mask;
  __m256 load(const float* at, int j) const { return j < J - 1 ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, mask); }
  void store(float* at, int j, __m256 value) const {
    if (j < J - 1)
      _mm256_storeu_ps(at, value);
    else
      _mm256_maskstore_ps(at, mask, value);
  }
};

/// R rows by J vectors; packed: a is a packed strip. Rows, columns and layout are template parameters, so that the sums
/// stay in registers.
template <int R, int J, bool packed>
void tile_of(const TileCall& t) {
  __m256 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_setzero_ps();
    _mm_prefetch(reinterpret_cast<const char*>(t.c + r * t.c_row), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(t.c + r * t.c_row + J * lanes - 1), _MM_HINT_T0);
  }
  const float *a = t.a, *b = t.b;
  const bool fetches = t.next != t.a;
  for (std::int64_t k = 0; k < t.depth;) {
    if (fetches) {
      UNROLL for (int r = 0; r < R; ++r) {  // 16 k steps read one cache line of each row
        _mm_prefetch(reinterpret_cast<const char*>(t.next + (packed ? k * tile_rows + r * line : r * t.a_row + k)),
                     _MM_HINT_T0);
      }
    }
    if constexpr (R == tile_rows && J == tile_vectors) {
      if (t.depth - k >= line) {
        sixteen_steps<packed>(a, t.a_row, b, sum);
        k += line, a += packed ? line * tile_rows : line, b += line * J * lanes;
        continue;
      }
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
  if (t.cols == J * lanes)
    finish(t, sum, WholeRow{});
  else
    finish(t, sum, PartOfRow<J>{first_lanes(t.cols - (J - 1) * lanes)});
}

using Tile = void (*)(const TileCall&);

/// Selects the instantiation for `rows`.
template <int J, bool packed>
Tile tile_with(std::int64_t rows) {
  static constexpr Tile by_rows[] = {tile_of<1, J, packed>, tile_of<2, J, packed>, tile_of<3, J, packed>,
                                     tile_of<4, J, packed>};
  return by_rows[rows - 1];
}

void tile(const TileCall& t) {
  const bool packed = t.a_step != 1;
  if (t.cols > 2 * lanes) return (packed ? tile_with<3, true>(t.rows) : tile_with<3, false>(t.rows))(t);
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

/// Of the panel of `cols` columns, or of the first of several: whole vectors.
std::int64_t width_of(std::int64_t cols) {
  return cols >= tile_vectors * lanes ? tile_vectors * lanes : (cols + lanes - 1) / lanes * lanes;
}

/// One panel of pack_along: `width` columns, of which `cols` exist.
template <class Of>
void pack_panel(const typename Of::Element* src, std::int64_t across, std::int64_t depth, std::int64_t cols,
                std::int64_t width, float* dst) {
  for (std::int64_t j = 0; j < width; j += lanes) {  // 8 rows of src at a time, each read contiguously
    const auto* rows = src + j * across;
    for (std::int64_t k = 0; k < depth; k += lanes) {
      const std::int64_t steps = depth - k < lanes ? depth - k : lanes;
      __m256 v[lanes];
      UNROLL for (int i = 0; i < lanes; ++i) {
        const auto* row = rows + i * across + k;
        v[i] = j + i >= cols ? _mm256_setzero_ps() : steps == lanes ? Of::all(row) : Of::some(steps, row);
      }
      transpose(v);
      UNROLL for (int i = 0; i < lanes; ++i) {
        if (i < steps) _mm256_store_ps(dst + (k + i) * width + j, v[i]);
      }
    }
  }
}

template <class Of>
void pack_along(const void* source, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(source);
  constexpr std::int64_t full = tile_vectors * lanes;
  for (; cols > 0; cols -= full, src += full * across, dst += panel) {
    pack_panel<Of>(src, across, depth, cols, width_of(cols), dst);
  }
}

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
        _mm256_store_ps(to + (k * tile_vectors + j) * lanes, Of::all(from));
      }
    }
    to += k * width_of(left);
    for (; left > 0; left -= lanes, from += lanes, to += lanes) {
      _mm256_store_ps(to, Of::some(left, from));
    }
  }
}

template <class Of>
void pack_strips(const void* source, std::int64_t along, std::int64_t depth, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(source);
  const std::int64_t whole = rows / tile_rows;
  for (std::int64_t k = 0; k < depth; ++k) {
    const auto* from = src + k * along;
    float* to = dst + k * tile_rows;
    for (std::int64_t s = 0; s < whole; ++s, from += tile_rows) _mm_storeu_ps(to + s * strip, Of::four(from));
    for (std::int64_t r = 0; whole * tile_rows < rows && r < tile_rows; ++r) {
      to[whole * strip + r] = whole * tile_rows + r < rows ? Of::one(from[r]) : 0;
    }
  }
}

float sum_of_lanes(__m256 v) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// R rows of a against J rows of b, `apart` rows from one to the next, from `col` on. The lanes of each sum are added
/// at the end.
template <class Of, int R, int J>
void dots_of(const DotsCall& t, std::int64_t col, std::int64_t apart) {
  __m256 sum[R][J];
  UNROLL for (int r = 0; r < R; ++r) { UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_setzero_ps(); }
  const auto* b = static_cast<const typename Of::Element*>(t.b) + col * t.b_row;
  const std::int64_t next = apart * t.b_row;
  std::int64_t k = 0;
  for (; k + lanes <= t.depth; k += lanes) {
    __m256 v[J];
    UNROLL for (int j = 0; j < J; ++j) v[j] = Of::all(b + j * next + k);
    UNROLL for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_loadu_ps(t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_fmadd_ps(x, v[j], sum[r][j]);
    }
  }
  if (k < t.depth) {
    const std::int64_t rest = t.depth - k;
    UNROLL for (int r = 0; r < R; ++r) {
      const __m256 x = OfFloat::some(rest, t.a + r * t.a_row + k);
      UNROLL for (int j = 0; j < J; ++j) sum[r][j] = _mm256_fmadd_ps(x, Of::some(rest, b + j * next + k), sum[r][j]);
    }
  }
  UNROLL for (int r = 0; r < R; ++r) {
    UNROLL for (int j = 0; j < J; ++j) {
      const float start = t.start == nullptr ? 0 : t.start[r * t.start_row + col + j * apart];
      t.c[r * t.c_row + col + j * apart] = start + sum_of_lanes(sum[r][j]);
    }
  }
}

/// The rows of b that are read together are far apart: each of these streams goes on where it was, so that b comes from
/// memory as fast as memory can be read. Rows side by side make streams that end with each row, at half that rate.
template <class Of, int R>
void dots_with(const DotsCall& t) {
  constexpr int streams = 4;
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
void widen(const void* source, std::int64_t count, float* dst) {
  const auto* src = static_cast<const typename Of::Element*>(source);
  for (; count >= lanes; count -= lanes, src += lanes, dst += lanes) _mm256_storeu_ps(dst, Of::all(src));
  for (; count > 0; --count) *dst++ = Of::one(*src++);
}

/// Integer rounding, the same bits as kernels/type_conversion.cpp: half the last kept place is added, less one if that
/// place is even; a NaN keeps its upper half and is made quiet.
__m128i rounded_bfloat16(__m256 value) {
  const __m256i word = _mm256_castps_si256(value), upper = _mm256_srli_epi32(word, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(word, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), odd)), 16);
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i result = _mm256_blendv_epi8(rounded, _mm256_or_si256(upper, _mm256_set1_epi32(0x40)), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(result), _mm256_extracti128_si256(result, 1));
}

__m128i rounded_float16(__m256 value) { return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT); }

template <__m128i (*rounded)(__m256)>
void narrow(const float* src, std::int64_t count, void* to) {
  auto* dst = static_cast<std::uint16_t*>(to);
  for (; count >= lanes; count -= lanes, src += lanes, dst += lanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst), rounded(_mm256_loadu_ps(src)));
  if (count <= 0) return;
  alignas(16) std::uint16_t last[lanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(last), rounded(OfFloat::some(count, src)));
  for (int i = 0; i < count; ++i) dst[i] = last[i];
}

template <class Of>
constexpr Packing packing(decltype(Packing::widen) wide, decltype(Packing::narrow) narrow_to) {
  return {.along = pack_along<Of>,
          .across = pack_across<Of>,
          .strips = pack_strips<Of>,
          .widen = wide,
          .narrow = narrow_to,
          .dots = dots<Of>};
}

}  // namespace

const TileKernels& tiles_avx2() {
  static constexpr TileKernels kernels = {.rows = tile_rows,
                                          .cols = tile_vectors * lanes,
                                          .vector = lanes,
                                          .depth = 512,
                                          .panels = 8,
                                          .elements = 1,
                                          .tile = tile,
                                          .float32 = packing<OfFloat>(nullptr, nullptr),
                                          .bfloat16 = packing<OfBfloat16>(widen<OfBfloat16>, narrow<rounded_bfloat16>),
                                          .float16 = packing<OfFloat16>(widen<OfFloat16>, narrow<rounded_float16>)};
  return kernels;
}

}  // namespace tessera::kernels
