#include "framework/kernels/weight.h"

#include <algorithm>
#include <cstring>

#include "framework/base/error.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

namespace tessera::kernels {
namespace {

/// A row of a stored matrix: its block, and its number in the block.
struct RowPlace {
  const StoredRows* block;
  std::int64_t row;
};

RowPlace place_of(const StoredMatrix& matrix, std::int64_t row) {
  for (const auto& block : matrix.blocks) {
    if (row < block.rows) return {&block, row};
    row -= block.rows;
  }
  throw BugError(text("a row is read that the matrix does not have; it has ", matrix.rows()));
}

/// The elements [first, first + count) of a plain block, counted from the start of its array.
Elements plain_part(const StoredRows& block, std::int64_t first, std::size_t count) {
  return Elements(block.plain).part(static_cast<std::size_t>(first), count);
}

/// One row of a box. `wide` is memory for `to.size()` floats, where it is needed.
void read_part(const RowPlace& place, std::int64_t col, DType type, const MutableElements& to, std::span<float> wide) {
  const auto& block = *place.block;
  const auto first = block.first + place.row * block.stride + col;
  const bool is_plain = block.packed == nullptr;
  const auto from = is_plain ? plain_part(block, first, to.size()) : Elements();
  if (is_plain && from.type == to.type && (to.type == type || type == DType::float32)) {
    std::memcpy(to.at, from.at, to.size() * size_of(to.type));
    return;
  }
  const auto floats =
      to.type == DType::float32 ? std::span(reinterpret_cast<float*>(to.at), to.size()) : wide.first(to.size());
  is_plain ? widen_range(from, floats) : block.packed->unpack(first, floats);
  if (to.type != DType::float32) return narrow_range(floats, to);
  if (type == DType::float32 || (is_plain && from.type == type)) return;
  const MutableElements rounded(reinterpret_cast<std::byte*>(wide.data()), to.size(), type);
  narrow_range(floats, rounded);
  widen_range(rounded, floats);
}

}  // namespace

void read_box(const StoredMatrix& from, const MatrixBox& box, DType type, const MutableElements& to) {
  const auto cols = static_cast<std::size_t>(box.cols);
  const Scratch wide(type == DType::float32 ? 0 : cols);
  auto place = place_of(from, box.row);
  for (std::int64_t r = 0; r < box.rows; ++r, ++place.row) {
    if (place.row == place.block->rows) place = {place.block + 1, 0};
    read_part(place, box.col, type, to.part(static_cast<std::size_t>(r) * cols, cols), wide.floats());
  }
}

void read_row(const Weight& weight, std::int64_t row, std::int64_t width, std::span<float> to) {
  if (weight.stored != nullptr) return read_box(*weight.stored, {row, 1, 0, width}, weight.type(), to);
  widen_range(weight.elements.part(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width)), to);
}

PlainRows plain_rows(const StoredMatrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t col) {
  const auto [block, first] = place_of(matrix, row);
  if (block->packed != nullptr || first + rows > block->rows) return {};
  const auto elements = plain_part(*block, block->first + first * block->stride + col, 0);
  return {elements.at, block->stride, elements.type};
}

std::int64_t rows_in_block(const StoredMatrix& matrix, std::int64_t row) {
  const auto [block, first] = place_of(matrix, row);
  return block->rows - first;
}

}  // namespace tessera::kernels
