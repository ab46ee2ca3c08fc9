#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/tensor/stored_matrix.h"

namespace tessera::kernels {

/// A weight [out, in] as an operand of a matrix product: dense elements, or a matrix that lies in a file in blocks of
/// rows and is converted while the product packs it, a few rows or columns at a time. The results have the bits of the
/// dense elements that reading `stored` in the type type() would give. Owns nothing.
struct Weight {
  Elements elements;  ///< of a stored weight: number and type only
  const StoredMatrix* stored = nullptr;

  Weight() = default;
  template <class Dense>
  requires std::convertible_to<const Dense&, Elements> Weight(
      const Dense& dense)  // NOLINT(google-explicit-constructor)
      : elements(dense) {}
  /// `type`: the type that the product reads; stored values of a wider type are rounded to it. The width must be at
  /// least 2: the order of sums of narrower ones depends on strides in memory.
  Weight(const StoredMatrix& matrix, DType type)
      : elements(nullptr, static_cast<std::size_t>(matrix.rows() * matrix.width), type), stored(&matrix) {}

  std::size_t size() const { return elements.size(); }
  DType type() const { return elements.type; }
};

/// Rows [row, row + rows) and columns [col, col + cols) of a matrix.
struct MatrixBox {
  std::int64_t row, rows, col, cols;
};

/// Copies a box of a stored matrix, rounded to `type`, into `to`: dense rows of `cols` elements of `type` or float32.
/// In the calling thread.
void read_box(const StoredMatrix& from, const MatrixBox& box, DType type, const MutableElements& to);

/// Row `row` of a weight of `width` columns as floats. In the calling thread.
void read_row(const Weight& weight, std::int64_t row, std::int64_t width, std::span<float> to);

/// Rows of a stored matrix that kernels can read in place: element (r, c) is r * stride + c elements after `at`.
struct PlainRows {
  const std::byte* at = nullptr;  ///< null: they cannot
  std::int64_t stride = 0;
  DType type = DType::float32;
};
/// The rows [row, row + rows) from column `col` on, if they are in one block of elements of a DType.
PlainRows plain_rows(const StoredMatrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t col);
/// Number of rows from row `row` on that are in the same block.
std::int64_t rows_in_block(const StoredMatrix& matrix, std::int64_t row);

}  // namespace tessera::kernels
