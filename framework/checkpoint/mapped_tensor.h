#pragma once

#include <memory>
#include <optional>

#include "framework/base/files.h"
#include "framework/tensor/box.h"
#include "framework/tensor/stored_matrix.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// Elements of a tensor in a mapped file: read-only memory, valid as long as `file`.
struct MappedTensor {
  std::shared_ptr<const MappedFile> file;
  Tensor tensor;
};

/// The elements of the box `part` of `whole`, which has those of the box `all`; nothing if they do not lie there one
/// after the other, in the type `type` and aligned to the size of an element. `shape`: the shape of the result.
std::optional<MappedTensor> part_of(const MappedTensor& whole, const Box& all, const Box& part, DType type,
                                    const Shape& shape);

/// Appends rows [row, row + rows) of `whole`, a matrix, from column `col` on to `matrix`. Returns false, and appends
/// nothing, if its elements are not float32, bfloat16 or float16, or not aligned to their size.
bool append_rows(StoredMatrix& matrix, const MappedTensor& whole, std::int64_t row, std::int64_t rows,
                 std::int64_t col);

}  // namespace tessera::checkpoint
