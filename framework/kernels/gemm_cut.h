#pragma once

#include <cstdint>

namespace tessera {

/// How the output of a product is cut into tasks: a grid of equal blocks (the last of a row or column may be smaller).
/// It follows from the extents alone.
struct Cut {
  std::int64_t rows, cols;              ///< of a block
  std::int64_t row_blocks, col_blocks;  ///< in the grid
  bool rows_first;  ///< consecutive tasks go down a column of blocks: the larger factor stays in the cache

  std::int64_t tasks() const { return row_blocks * col_blocks; }
  std::int64_t row_of(std::int64_t task) const { return (rows_first ? task % row_blocks : task / col_blocks) * rows; }
  std::int64_t col_of(std::int64_t task) const { return (rows_first ? task / row_blocks : task % col_blocks) * cols; }
};

inline constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// `extent` in as many equal parts as it takes so that none exceeds `most`, each a multiple of `unit`: the size of a
/// part.
inline constexpr std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t unit) {
  const std::int64_t parts = ceil_div(extent, most);
  return ceil_div(ceil_div(extent, parts), unit) * unit;
}

}  // namespace tessera
