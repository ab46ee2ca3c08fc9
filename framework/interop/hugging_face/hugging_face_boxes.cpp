#include <algorithm>
#include <cstring>

#include "framework/checkpoint/copy_converted.h"
#include "framework/interop/hugging_face/hugging_face.h"

// Boxes of weights from the files, without the rest of the weight in memory.

namespace tessera::hugging_face {

void HuggingFaceModel::read_box(const checkpoint::TensorRange& into) const {
  if (auto [state, weight] = state_of(into.name); state != nullptr) {
    auto of_weight = into;
    of_weight.name = std::move(weight);
    return state->read_box(of_weight);
  }
  if (into.tensor.shape().rank() != 2) return WeightSource::read_box(into);
  const auto& wanted = row(into.name);
  if (const auto matrix = stored(into)) {
    std::int64_t row = 0;
    for (const auto& block : matrix->blocks) {
      read_rows(into.name, block, into.tensor.slice(row, block.rows));
      row += block.rows;
    }
  } else if (const auto from = moved(wanted)) {
    read_moved(wanted, from->tensor, into);
  } else if (has_boxes(wanted)) {
    read_parts(wanted, into);
  } else {
    WeightSource::read_box(into);
  }
  files_->require_intact();
}

bool HuggingFaceModel::reads_rows(const std::string& name) const {
  if (const auto [state, weight] = state_of(name); state != nullptr) return state->reads_rows(weight);
  const auto all = shape(name);
  if (all.rank() != 2) return false;
  const auto& wanted = row(name);
  return moved(wanted) || has_boxes(wanted) ||
         stored(checkpoint::whole(name, Tensor::without_elements(dtype(name), all)));
}

/// Throws ConfigError for the first element of the weight that is not finite.
void HuggingFaceModel::find_not_finite(const std::string& name) const {
  std::vector<float> whole(static_cast<std::size_t>(shape(name).elements()));
  read(name, whole);
}

/// `into` has the rows of the block.
void HuggingFaceModel::read_rows(const std::string& name, const StoredRows& rows, const Tensor& into) const {
  const auto width = into.shape().width();
  const bool together = rows.stride == width && !rows.packed;
  const auto count = together ? rows.rows : 1;  // at a time
  std::vector<float> unpacked(rows.packed ? static_cast<std::size_t>(width) : 0);
  for (std::int64_t row = 0; row < rows.rows; row += count) {
    const auto first = rows.first + row * rows.stride;
    if (rows.packed) rows.packed->unpack(first, unpacked);
    const auto elements = rows.packed ? Tensor(std::span(unpacked), Shape{width})
                                      : rows.plain.reshaped({rows.plain.elements()}).slice(first, count * width);
    if (!checkpoint::is_finite(elements)) find_not_finite(name);
    checkpoint::copy_converted(elements, into.slice(row, count));
  }
}

/// Whether the parts, whose elements lie in several places, are read in boxes of rows.
bool HuggingFaceModel::has_boxes(const WeightRow& row) const {
  const auto shapes = part_shapes(row);
  return files_->reads_boxes() && rows_in_parts(row, shapes, 0, 0) &&
         std::ranges::all_of(shapes, [](const auto& part) { return part.rank() == 2; }) &&
         std::ranges::none_of(row.from, [&](const auto& part) { return packed(part) != nullptr; });
}

void HuggingFaceModel::read_parts(const WeightRow& row, const checkpoint::TensorRange& into) const {
  const auto pieces =
      rows_in_parts(row, part_shapes(row), into.offsets[0], into.tensor.shape()[0]).value_or(std::vector<RowsOfPart>());
  std::int64_t first = 0;
  for (const auto& piece : pieces) {
    const Box box{{piece.row, into.offsets[1]}, {piece.rows, into.tensor.shape()[1]}};
    files_->read_box(found(row.from[piece.part]), box, into.tensor.slice(first, piece.rows));
    first += piece.rows;
  }
  if (!checkpoint::is_finite(into.tensor)) find_not_finite(into.name);
}

/// The one tensor in a file whose elements are those of the matrix with rows in another order, or transposed.
std::optional<checkpoint::MappedTensor> HuggingFaceModel::moved(const WeightRow& row) const {
  const bool keeps_order = row.steps.empty() && !row.expert;
  if (keeps_order || row.from.size() != 1 || packed(row.from[0]) != nullptr || !makes_rows(row)) return std::nullopt;
  auto whole = files_->mapped_whole(found(row.from[0]));
  if (!whole) return std::nullopt;
  if (row.expert) {
    const auto shape = shape_of_expert(row, found(row.from[0]), whole->tensor.shape());
    whole->tensor = whole->tensor.slice(*row.expert, 1).reshaped(shape);
  }
  return whole->tensor.shape().rank() == 2 ? whole : std::nullopt;
}

void HuggingFaceModel::read_moved(const WeightRow& row, const Tensor& from, const checkpoint::TensorRange& into) const {
  const auto rows = into.global_shape[0], width = into.tensor.shape()[1], column = into.offsets[1];
  const auto size = size_of(from.dtype());
  const bool transposed = !row.steps.empty() && row.steps.front() == WeightStep::transpose;
  std::vector<std::byte> box(static_cast<std::size_t>(into.tensor.elements()) * size);
  const auto copy = [&](std::int64_t at, std::int64_t element, std::int64_t count) {
    std::memcpy(box.data() + static_cast<std::size_t>(at) * size,
                from.raw().data() + static_cast<std::size_t>(element) * size, static_cast<std::size_t>(count) * size);
  };
  for (std::int64_t r = 0; r < into.tensor.shape()[0]; ++r) {
    const auto theirs = their_row_of(row, rows, into.offsets[0] + r);
    if (!transposed)
      copy(r * width, theirs * into.global_shape[1] + column, width);
    else
      for (std::int64_t c = 0; c < width; ++c) copy(r * width + c, (column + c) * rows + theirs, 1);
  }
  const Tensor elements{std::span(box), from.dtype(), into.tensor.shape()};
  if (!checkpoint::is_finite(elements)) find_not_finite(into.name);
  checkpoint::copy_converted(elements, into.tensor);
}

}  // namespace tessera::hugging_face
