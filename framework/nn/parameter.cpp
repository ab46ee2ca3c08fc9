#include "framework/nn/parameter.h"

#include <algorithm>

#include "framework/nn/adapter.h"

namespace tessera::nn {
namespace {

/// A shape folded to three dimensions: the product of the extents before `dim`, the extent of `dim`, and the product of
/// the extents after it.
struct Folded {
  std::int64_t outer = 1, extent = 1, inner = 1;

  Folded(const Shape& shape, std::size_t dim) {
    for (std::size_t k = 0; k < shape.rank(); ++k) (k < dim ? outer : k == dim ? extent : inner) *= shape[k];
  }
};

/// The strips of a parameter; a parameter without strips gets a single strip of all rows.
std::vector<TensorCut::Strip> strips_of(const Parameter& parameter) {
  if (!parameter.cut.strips.empty()) return parameter.cut.strips;
  return {{0, parameter.global_shape.rank() == 0 ? 1 : parameter.global_shape[0], true}};
}

}  // namespace

std::int64_t TensorCut::extent() const {
  std::int64_t all = 0;
  for (const auto& strip : strips) all += strip.count;
  return all;
}

Shape TensorCut::of(const Shape& whole) const {
  if (strips.empty()) return whole;
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
  dims[dim] = extent();
  return Shape(std::span<const std::int64_t>(dims));
}

std::vector<ElementRange> Parameter::owned() const {
  if (cut.strips.empty()) return {{0, elements()}};
  std::vector<ElementRange> ranges;
  if (cut.dim != 0) {
    must(cut.strips.size() == 1, "a tensor is cut into several strips along its first dim only");
    if (cut.strips[0].owned) ranges.push_back({0, elements()});
    return ranges;
  }
  const auto row = Folded(shape(), 0).inner;
  std::int64_t first = 0;
  for (const auto& strip : cut.strips) {
    if (strip.owned) ranges.push_back({first * row, strip.count * row});
    first += strip.count;
  }
  return ranges;
}

bool may_be_stored(const Parameter& parameter) {
  switch (parameter.role) {
    case ParameterRole::word_embedding:
    case ParameterRole::position_embedding:
    case ParameterRole::output_layer:
    case ParameterRole::matrix:
    case ParameterRole::expert:
      return parameter.global_shape.rank() == 2 && !is_of_adapter(parameter.name);
    default:
      return false;
  }
}

void share_copied_rows(Parameter& parameter) {
  const auto row = parameter.cut.strips.empty() ? 0 : Folded(parameter.shape(), 0).inner;
  std::int64_t first = 0;
  for (const auto& strip : parameter.cut.strips) {
    if (strip.copied) parameter.shared.push_back({GradientSharers::head_copies, {first * row, strip.count * row}});
    first += strip.count;
  }
}

std::vector<ElementRange> global_ranges_of(const Parameter& parameter) {
  const auto dim = parameter.cut.dim;
  const Folded whole(parameter.global_shape, dim), here(parameter.shape(), dim);
  std::vector<ElementRange> ranges;
  for (std::int64_t o = 0; o < here.outer; ++o)
    for (const auto& strip : strips_of(parameter))
      ranges.push_back({(o * whole.extent + strip.first) * whole.inner, strip.count * here.inner});
  return ranges;
}

namespace {

/// Index in the unsharded tensor of row `row` of this rank's part.
std::int64_t global_row(const std::vector<TensorCut::Strip>& strips, std::size_t dim, std::int64_t row) {
  if (dim != 0) return row;
  for (const auto& strip : strips) {
    if (row < strip.count) return strip.first + row;
    row -= strip.count;
  }
  return row;
}

/// Number of rows from `row` on that are in the same strip.
std::int64_t rows_left(const std::vector<TensorCut::Strip>& strips, std::size_t dim, std::int64_t row,
                       std::int64_t rows) {
  if (dim != 0) return rows - row;
  for (const auto& strip : strips) {
    if (row < strip.count) return strip.count - row;
    row -= strip.count;
  }
  return 0;
}

}  // namespace

std::vector<Box> boxes_of(const Parameter& parameter, ElementRange elements) {
  const auto shape = parameter.shape();
  const auto strips = strips_of(parameter);
  const auto dim = parameter.cut.dim;
  must(shape.rank() <= 2, "parameters have one or two dims");
  const auto columns = shape.rank() == 2 ? shape[1] : 1, rows = shape.rank() == 0 ? 1 : shape[0];
  const auto first_column = dim == 1 && !parameter.cut.strips.empty() ? strips[0].first : 0;
  std::vector<Box> boxes;
  for (auto at = elements.first, end = elements.first + elements.count; at < end;) {
    const auto row = at / columns, column = at % columns;
    // Either as many whole rows as possible within one strip, or a part of one row: both are contiguous in this rank's
    // part and a box of the unsharded tensor.
    const auto whole_rows = column == 0 ? std::min((end - at) / columns, rows_left(strips, dim, row, rows)) : 0;
    const auto count = whole_rows > 0 ? whole_rows * columns : std::min(columns - column, end - at);
    const auto first_row = global_row(strips, dim, row);
    if (shape.rank() < 2)
      boxes.push_back({{first_row}, {count}});
    else if (whole_rows > 0)
      boxes.push_back({{first_row, first_column}, {whole_rows, columns}});
    else
      boxes.push_back({{first_row, first_column + column}, {1, count}});
    at += count;
  }
  return boxes;
}

}  // namespace tessera::nn
