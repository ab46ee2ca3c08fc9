#pragma once

#include <cstdint>

namespace tessera::kernels {

/// Division of the output of a matrix product into tasks: a grid of equal blocks; the last block in a row or column of
/// the grid may be smaller. It depends on the extents only, so results do not depend on the number of threads.
struct TaskGrid {
  std::int64_t rows, cols;              ///< extents of one block
  std::int64_t row_blocks, col_blocks;  ///< number of blocks along the rows and along the columns of the output
  bool rows_first;  ///< consecutive tasks go down a column of blocks, so that the larger operand stays in cache

  /// Number of blocks; block `task` begins at (row_of(task), col_of(task)).
  std::int64_t tasks() const { return row_blocks * col_blocks; }
  std::int64_t row_of(std::int64_t task) const { return (rows_first ? task % row_blocks : task / col_blocks) * rows; }
  std::int64_t col_of(std::int64_t task) const { return (rows_first ? task / row_blocks : task % col_blocks) * cols; }
};

/// a / b, rounded up; for a >= 0, b > 0.
inline constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Divides `extent` into equal parts of at most `most`, each a multiple of `unit`, and returns the size of a part. The
/// rounding to `unit` may exceed `most` by less than one unit.
inline constexpr std::int64_t even_part(std::int64_t extent, std::int64_t most, std::int64_t unit) {
  const std::int64_t parts = ceil_div(extent, most);
  return ceil_div(ceil_div(extent, parts), unit) * unit;
}

}  // namespace tessera::kernels
