#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace tessera {

/// Positions of the rows of a three-dimensional block in an array of floats: row (i, j, k) begins at element
/// offset + i * strides[0] + j * strides[1] + k * strides[2].
struct StridedRows {
  std::int64_t offset = 0;
  std::array<std::int64_t, 3> strides = {};
};

/// Copies a block of shape `extents` [n0, n1, n2, width] from `from` to `to`: n0 * n1 * n2 rows of `width` contiguous
/// floats, at the positions given by `from_rows` and `to_rows`. The arrays must not overlap. Throws ShapeError if a row
/// is outside its array.
void copy_strided(const std::array<std::int64_t, 4>& extents, std::span<const float> from, const StridedRows& from_rows,
                  std::span<float> to, const StridedRows& to_rows);

}  // namespace tessera
