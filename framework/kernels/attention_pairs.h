#pragma once

#include "framework/kernels/attention_call.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {

// Attention with register tiles that multiply pairs of bfloat16 (gemm_tiles.h). A word is such a pair: 32 bits, stored
// as a float. Internal to this component.

/// Keys in one packed block of PackedKeys.
inline constexpr std::int64_t packed_keys = 64;

/// Memory layout of a right operand with `cols` columns of `depth` words: consecutive panels [depth, panel_cols]. The
/// rows of the last panel are only as wide as its columns need, rounded up to whole vectors of `vector` words.
struct PanelShape {
  std::int64_t cols, depth, panel_cols, vector;

  PanelShape(const TileKernels& tiles, std::int64_t columns, std::int64_t words)
      : cols(columns), depth(words), panel_cols(tiles.cols), vector(tiles.vector) {}
  std::int64_t panels() const { return ceil_div(cols, panel_cols); }
  std::int64_t panel() const { return depth * panel_cols; }
  std::int64_t floats() const { return panels() * panel(); }
  /// Words in a row of the panel that holds `column`.
  std::int64_t width(std::int64_t column) const {
    const std::int64_t left = cols - column / panel_cols * panel_cols;
    return left >= panel_cols ? panel_cols : ceil_div(left, vector) * vector;
  }
  /// The first word of `column`.
  std::int64_t at(std::int64_t column) const { return column / panel_cols * panel() + column % panel_cols; }
};

/// Rows of a left operand: strip s of R rows begins at `at + s * strip`. `row` and `step` are TileCall's a_row and
/// a_step.
struct PairRows {
  const float* at;
  std::int64_t row, step, strip;
};

/// The rows of one head as a left operand, read in place: they begin at element `first` of x and are `row` elements
/// apart. x is bfloat16; `first` and `row` are even.
PairRows pair_rows(const TileKernels& tiles, const Elements& x, std::int64_t first, std::int64_t row);
/// Rows of words that are `row` words apart, as a left operand.
PairRows pair_rows(const TileKernels& tiles, const float* words, std::int64_t row);

/// c[r][j] = sum over k of a(r, k) b(k, j), or c[r][j] += this sum if `add`, for r < rows and j < shape.cols. k runs
/// over the elements of `words` pairs. c is fp32, with rows `c_row` floats apart.
void multiply_pairs(const TileKernels& tiles, std::int64_t rows, std::int64_t words, const PairRows& a,
                    const PanelShape& shape, const float* b, float* c, std::int64_t c_row, bool add);

/// Packs `count` rows of shape.cols elements of x as pairs of consecutive rows into panels of `shape`: a right operand
/// of sums over rows. The first row begins at element `first` of x, and rows are `row` elements apart. Words of the
/// panels beyond `count` rows are zero.
void pack_pairs_of_rows(const TileKernels& tiles, const Elements& x, std::int64_t first, std::int64_t row,
                        std::int64_t count, const PanelShape& shape, float* to);

/// Whether operands of these types and extents can be multiplied as pairs: all are bfloat16, D is even, and all strides
/// and offsets are even, so that rows begin at words.
bool can_multiply_pairs(const AttentionExtents& e, std::initializer_list<DType> types);

/// Keys or values of all samples and groups, packed as a left operand of sums over keys: the channels are its rows, and
/// pairs are formed along the tokens. Refers to `tiles` and `e`, which must outlive it; owns no memory.
class PackedKeys {
 public:
  PackedKeys(const TileKernels& tiles, const AttentionExtents& e) : tiles_(tiles), e_(e) {}

  /// Size of the packed array, in floats.
  std::int64_t floats() const { return e_.B * e_.G * blocks() * block_floats(); }
  /// Packs x, laid out as `rows` says, into `memory`, which has floats() floats.
  void pack(Threads& threads, const Elements& x, const HeadRows& rows, float* memory) const;
  /// The left operand for up to packed_keys keys from `key` on, which is a multiple of packed_keys.
  PairRows rows(const float* memory, std::int64_t b, std::int64_t g, std::int64_t key) const;

 private:
  std::int64_t blocks() const { return ceil_div(e_.S, packed_keys); }
  std::int64_t strip() const { return packed_keys / 2 * tiles_.rows; }
  std::int64_t block_floats() const { return ceil_div(e_.D, tiles_.rows) * strip(); }

  const TileKernels& tiles_;
  const AttentionExtents& e_;
};

}  // namespace tessera::kernels
