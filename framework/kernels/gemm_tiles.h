#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Arguments of one register tile: c = start + a b over `depth` steps of the summed index k. The tile has `rows` <= R
/// rows and `cols` <= C columns, R and C being those of TileKernels.
///
/// The operands are sequences of 32-bit words. A word is one float or, for a set that multiplies bfloat16, a pair: the
/// element of an even k in the lower half and that of k + 1 in the upper half. `depth`, a_row and a_step count words.
///
///   a       word (r, k) at a[r * a_row + k / B * B * a_step + k % B], B = `block` of TileKernels; (a_row, a_step) is
///           (any, 1): rows in place, or (B, R): a strip packed by Packing::strips
///   next    the `a` of a later call, which this one prefetches; or `a` again
///   b       a packed panel [depth, width], where width is `cols` rounded up to whole vectors; 64-byte aligned
///   start   added to the sum, floats; null: zero. start_row 0 adds one row to all rows (the bias). `start` may be c
///   c       floats, rows c_row apart
struct TileCall {
  const float* a;
  std::int64_t a_row, a_step;
  const float* next;
  const float* b;
  std::int64_t depth;
  const float* start;
  std::int64_t start_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, cols;
};

/// Arguments of a product of few rows with many: c[r, j] = start[j] + sum over k of a[r, k] b[j, k]. k is the inner
/// index of both operands and nothing is packed: for decoding, where each element of b is used once. b is read in the
/// type of the Packing that the function belongs to; a is float.
struct DotsCall {
  const float* a;
  std::int64_t a_row;
  const void* b;
  std::int64_t b_row, depth;
  const float* start;  ///< as in TileCall, with start_row
  std::int64_t start_row;
  float* c;
  std::int64_t c_row;
  std::int64_t rows, cols;  ///< rows <= 4
};

/// What one instruction set does with elements of one type. `depth` and the strides of destinations count words,
/// `elements` elements of k; strides of sources count elements. If `elements` ends inside a word, the rest of the word
/// is zero. A function that is null is not needed or not available.
struct Packing {
  /// Pack b when k is its inner index: into panels `panel` words apart, each [depth, C]; the last one is as wide as its
  /// columns need in whole vectors. dst[(j / C) * panel + k * width + j % C] = word k of src[j * across], j < cols;
  /// padded with zeros.
  void (*along)(const void* src, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                float* dst);
  /// The same when k is the outer index: from src[k * along + j]. k runs outermost, so that src is read contiguously.
  void (*across)(const void* src, std::int64_t along, std::int64_t elements, std::int64_t cols, std::int64_t panel,
                 float* dst);
  /// Pack a, when k is its outer index: into strips `strip` words apart, padded with zeros to R rows.
  /// dst[(r / R) * strip + k / B * B * R + r % R * B + k % B] = word k of row r, r < rows; B = `block` of TileKernels,
  /// and the last block of k is padded too. Blocks of k run outermost, as above.
  void (*strips)(const void* src, std::int64_t along, std::int64_t elements, std::int64_t rows, std::int64_t strip,
                 float* dst);
  /// dst[i] = src[i] as float, exactly; i < count. Null for float.
  void (*widen)(const void* src, std::int64_t count, float* dst);
  /// dst[i] = src[i] rounded to nearest, ties to even; NaN stays NaN. Null for float.
  void (*narrow)(const float* src, std::int64_t count, void* dst);
  void (*dots)(const DotsCall& call);
};

/// What one instruction set provides for the blocked product of gemm_packed.cpp. The functions are in files compiled
/// for that set alone. Those files include no header with inline code of external linkage: the linker could otherwise
/// keep their copy of a shared inline function, and a machine without the instruction set would crash in it.
struct TileKernels {
  std::int64_t rows, cols;  ///< R and C of the full tile
  std::int64_t vector;      ///< words in a vector; panels are a multiple of that wide
  std::int64_t depth;       ///< words of k in a block: a panel is read from the L2 cache, a strip stays in the L1 cache
  std::int64_t panels;      ///< maximum panels of one task: one k block of them fits the L2 cache
  std::int64_t elements;    ///< of k in a word: 1 for floats, 2 for pairs of bfloat16
  std::int64_t tasks = 16;  ///< of a product, if its extents allow; fewer read `a` less often
  std::int64_t block = 1;   ///< words of k that lie together in a packed strip; `depth` is a multiple of it

  /// Maximum of rows that a task packs, a multiple of `rows`, if k is the outer index of a: a k block of them and of
  /// the panels of a task fit the L2 cache. 0: all tasks pack the rows together.
  std::int64_t strip_rows = 0;
  std::int64_t narrow = 0;  ///< columns of an output that a task may take as a whole; 0: `cols` x `panels`. Orders sums

  void (*tile)(const TileCall& call);
  Packing float32, bfloat16, float16;
};

/// The kernels of one set. Call them only on a machine that has it (available_isas()).
const TileKernels& tiles_avx2();
const TileKernels& tiles_avx512();
/// Both factors must be bfloat16: words are pairs of them. `float32` and `float16` have no packing functions.
const TileKernels& tiles_avx512_bf16();
const TileKernels& tiles_amx();

}  // namespace tessera::kernels
