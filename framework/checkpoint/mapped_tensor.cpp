#include "framework/checkpoint/mapped_tensor.h"

#include <algorithm>

namespace tessera::checkpoint {

std::optional<MappedTensor> part_of(const MappedTensor& whole, const Box& all, const Box& part, DType type,
                                    const Shape& shape) {
  const auto size = size_of(type);
  if (whole.tensor.dtype() != type || intersection(all, part) != part || !is_contiguous(part, all)) return std::nullopt;
  const auto elements = whole.tensor.raw().subspan(static_cast<std::size_t>(position_in(all, part.begin)) * size,
                                                   static_cast<std::size_t>(shape.elements()) * size);
  if (reinterpret_cast<std::uintptr_t>(elements.data()) % size != 0) return std::nullopt;
  return MappedTensor{whole.file, Tensor(elements, type, shape)};
}

bool append_rows(StoredMatrix& matrix, const MappedTensor& whole, std::int64_t row, std::int64_t rows,
                 std::int64_t col) {
  const auto type = whole.tensor.dtype();
  const bool is_read = type == DType::float32 || type == DType::bfloat16 || type == DType::float16;
  if (!is_read || reinterpret_cast<std::uintptr_t>(whole.tensor.raw().data()) % size_of(type) != 0) return false;
  const auto width = whole.tensor.shape().width();
  matrix.blocks.push_back(
      {.rows = rows, .first = row * width + col, .stride = width, .plain = whole.tensor, .packed = nullptr});
  if (std::ranges::find(matrix.files, whole.file) == matrix.files.end()) matrix.files.push_back(whole.file);
  return true;
}

}  // namespace tessera::checkpoint
