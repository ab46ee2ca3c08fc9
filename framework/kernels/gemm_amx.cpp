// AMX: products of bfloat16 pairs in tile registers of 16 rows by 16 words, summed in fp32. Four tiles of sums make a
// register tile of 32 x 32; two tiles of a and two of b feed them. The processor rounds each product to nearest and
// treats denormal numbers as zero, in operands and results.
#include "framework/kernels/gemm_pairs_avx512-inl.h"

namespace tessera::kernels {
namespace {

constexpr int tile_rows = 32, tile_vectors = 2;
constexpr std::int64_t block = 16;  // words of k in a tile register

/// The configuration of the tile registers: the memory operand of LDTILECFG, palette 1.
struct alignas(64) Configuration {
  std::uint8_t palette = 1, start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

/// What the registers hold: rows of a, words of k and columns of b. Each extent is divided into parts of 16 and the
/// rest.
struct Shape {
  std::int64_t rows = 0, words = 0, cols = 0;
  bool operator==(const Shape&) const = default;
};

/// The registers are configured for this shape in the calling thread. No other code of the process uses them.
thread_local Shape configured;

/// Registers 0 to 3: sums, row by row. 4, 5: a. 6, 7: b. A configuration clears all registers, so it is kept while it
/// fits.
void configure(const Shape& shape) {
  if (configured == shape) return;
  Configuration to;
  const auto part = [](std::int64_t extent, int at) {
    const std::int64_t left = extent - at * block;
    return left < 1 ? 1 : left < block ? left : block;  // of a part that does not exist: a valid register, never used
  };
  const auto set = [&](int tile, std::int64_t rows, std::int64_t words) {
    to.rows[tile] = static_cast<std::uint8_t>(rows);
    to.row_bytes[tile] = static_cast<std::uint16_t>(words * 4);
  };
  for (int i = 0; i < 2; ++i) {
    for (int j = 0; j < 2; ++j) set(2 * i + j, part(shape.rows, i), part(shape.cols, j));
    set(4 + i, part(shape.rows, i), shape.words);
    set(6 + i, shape.words, part(shape.cols, i));
  }
  __asm__ volatile("" ::: "memory");  // GCC 12 does not know that _tile_loadconfig reads memory
  _tile_loadconfig(&to);
  configured = shape;
}

/// Adds `count` blocks of `shape.words` words to the sums at `start`, or to zero, and writes them to c. R and J: parts
/// of rows and columns. a and b are at the first block.
template <int R, int J>
void sum_blocks(const TileCall& t, const float* a, const float* b, std::int64_t count, const float* start,
                std::int64_t start_row) {
  const std::int64_t start_bytes = start_row * 4, c_bytes = t.c_row * 4, a_bytes = t.a_row * 4, b_bytes = J * 64;
  const std::int64_t a_step = t.a_step * block, b_step = block * J * lanes;
  if (start != nullptr) {
    _tile_loadd(0, start, start_bytes);
    if constexpr (J > 1) _tile_loadd(1, start + lanes, start_bytes);
    if constexpr (R > 1) _tile_loadd(2, start + block * start_row, start_bytes);
    if constexpr (R > 1 && J > 1) _tile_loadd(3, start + block * start_row + lanes, start_bytes);
  } else {
    _tile_zero(0);
    if constexpr (J > 1) _tile_zero(1);
    if constexpr (R > 1) _tile_zero(2);
    if constexpr (R > 1 && J > 1) _tile_zero(3);
  }
  for (std::int64_t i = 0; i < count; ++i, a += a_step, b += b_step) {
    _tile_loadd(6, b, b_bytes);
    _tile_loadd(4, a, a_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (J > 1) {
      _tile_loadd(7, b + lanes, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (R > 1) {
      _tile_loadd(5, a + block * t.a_row, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (J > 1) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, t.c, c_bytes);
  if constexpr (J > 1) _tile_stored(1, t.c + lanes, c_bytes);
  if constexpr (R > 1) _tile_stored(2, t.c + block * t.c_row, c_bytes);
  if constexpr (R > 1 && J > 1) _tile_stored(3, t.c + block * t.c_row + lanes, c_bytes);
}

template <int R, int J>
void tile_of(const TileCall& t) {
  const std::int64_t blocks = t.depth / block, rest = t.depth % block;
  if (blocks > 0) {
    configure({t.rows, block, t.cols});
    sum_blocks<R, J>(t, t.a, t.b, blocks, t.start, t.start_row);
  }
  if (rest == 0) return;
  configure({t.rows, rest, t.cols});
  sum_blocks<R, J>(t, t.a + blocks * block * t.a_step, t.b + blocks * block * J * lanes, 1, blocks > 0 ? t.c : t.start,
                   blocks > 0 ? t.c_row : t.start_row);
}

void tile(const TileCall& t) {
  const bool rows = t.rows > block, cols = t.cols > lanes;
  (rows ? cols ? tile_of<2, 2> : tile_of<2, 1> : cols ? tile_of<1, 2> : tile_of<1, 1>)(t);
}

/// Sixteen rows by sixteen words at a time, transposed in registers.
void pack_strips(const void* src, std::int64_t along, std::int64_t elements, std::int64_t rows, std::int64_t strip,
                 float* dst) {
  const std::int64_t depth = (elements + 1) / 2;
  const auto* from = static_cast<const std::uint16_t*>(src);
  for (std::int64_t k = 0; k < depth; k += block) {
    const std::int64_t words = depth - k < block ? depth - k : block;
    const auto* even = from + 2 * k * along;
    for (std::int64_t row = 0; row < rows; row += block) {
      const __mmask16 mask = first_lanes(rows - row);
      __m512 v[lanes];
      UNROLL for (int i = 0; i < lanes; ++i) {
        const auto* low = even + 2 * i * along + row;
        fetch(low + 2 * block * along);
        fetch(low + (2 * block + 1) * along);
        v[i] = i < words ? pairs(_mm256_maskz_loadu_epi16(mask, low),
                                 _mm256_maskz_loadu_epi16(mask & upper_half(k + i, elements), low + along))
                         : _mm512_setzero_ps();
      }
      transpose(v);
      float* to = dst + row / tile_rows * strip + k * tile_rows + row % tile_rows * block;
      UNROLL for (int i = 0; i < lanes; ++i) _mm512_storeu_ps(to + i * block, v[i]);
    }
  }
}

}  // namespace

const TileKernels& tiles_amx() {
  static const TileKernels kernels = [] {
    Packing packing = tiles_avx512().bfloat16;
    packing.along = pack_pairs_along<tile_vectors>;
    packing.across = pack_pairs_across<tile_vectors>;
    packing.strips = pack_strips;
    return TileKernels{.rows = tile_rows,
                       .cols = tile_vectors * lanes,
                       .vector = lanes,
                       .depth = 512,
                       .panels = 24,
                       .elements = 2,
                       .tasks = 8,
                       .block = block,
                       .tile = tile,
                       .float32 = {},
                       .bfloat16 = packing,
                       .float16 = {}};
  }();
  return kernels;
}

}  // namespace tessera::kernels
