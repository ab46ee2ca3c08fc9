#pragma once

#include "framework/kernels/attention_call.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {

// Attention through register tiles that multiply pairs of bfloat16 (gemm_tiles.h). Internal to this component.

/// Keys that are packed together.
inline constexpr std::int64_t packed_keys = 64;

/// Where the columns of a right operand lie: panels of `panel_cols` columns, `depth` words deep, one behind the other;
/// the last one is as wide as its columns need in whole vectors.
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

/// Rows of a left operand: strip s of R rows begins at `at + s * strip`; the rest as TileCall.
struct PairRows {
  const float* at;
  std::int64_t row, step, strip;
};

/// Rows in place: the rows of one head, from its first element on.
PairRows pair_rows(const TileKernels& tiles, const Elements& x, std::int64_t first, std::int64_t row);
/// Rows of words that lie `row` words apart.
PairRows pair_rows(const TileKernels& tiles, const float* words, std::int64_t row);

/// c[r][j] = (c[r][j] +) the sum over `words` pairs of a(r, k) b(k, j); r < rows, j < shape.cols; rows of c `c_row`
/// floats apart.
void multiply_pairs(const TileKernels& tiles, std::int64_t rows, std::int64_t words, const PairRows& a,
                    const PanelShape& shape, const float* b, float* c, std::int64_t c_row, bool add);

/// `count` rows of `size` elements of x, `row` apart, as pairs along the rows in the panels of `shape` (cols: size;
/// depth: at least count / 2, the rest zeros).
void pack_pairs_of_rows(const TileKernels& tiles, const Elements& x, std::int64_t first, std::int64_t row,
                        std::int64_t count, const PanelShape& shape, float* to);

/// Whether all of these operands can be multiplied as pairs: bfloat16, an even number of channels, and rows that begin
/// at words.
bool can_multiply_pairs(const AttentionExtents& e, std::initializer_list<DType> types);

/// Keys or values of all samples and groups as pairs along the tokens, the channels being rows: a left operand of sums
/// over keys.
class PackedKeys {
 public:
  PackedKeys(const TileKernels& tiles, const AttentionExtents& e) : tiles_(tiles), e_(e) {}

  /// Floats of all of them.
  std::int64_t floats() const { return e_.B * e_.G * blocks() * block_floats(); }
  /// Packs x, laid out as `rows` says, into memory of floats().
  void pack(Threads& threads, const Elements& x, const HeadRows& rows, float* memory) const;
  /// The rows for the keys from `key` on, a multiple of packed_keys.
  PairRows rows(const float* memory, std::int64_t b, std::int64_t g, std::int64_t key) const;

 private:
  std::int64_t blocks() const { return ceil_div(e_.S, packed_keys); }
  std::int64_t strip() const { return packed_keys / 2 * tiles_.rows; }
  std::int64_t block_floats() const { return ceil_div(e_.D, tiles_.rows) * strip(); }

  const TileKernels& tiles_;
  const AttentionExtents& e_;
};

}  // namespace tessera::kernels
