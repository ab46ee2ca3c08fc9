#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "framework/base/files.h"
#include "framework/tensor/tensor.h"

namespace tessera {

/// An array of numbers in a storage type that is no DType, such as blocks of codes with common statistics. Read-only.
/// Each storage type is one class, in a file of `kernels/`.
class PackedArray {
 public:
  PackedArray() = default;
  PackedArray(const PackedArray&) = delete;
  PackedArray& operator=(const PackedArray&) = delete;
  virtual ~PackedArray() = default;

  virtual std::string_view storage_type() const = 0;  ///< "nf4"
  virtual std::int64_t size() const = 0;              ///< number of elements
  virtual std::int64_t bytes() const = 0;             ///< of the codes and statistics
  /// out[i] = element first + i, for all i of `out`, in the calling thread.
  virtual void unpack(std::int64_t first, std::span<float> out) const = 0;
};

/// A range of rows of a matrix as a file holds them: element (r, c) of the range is element first + r * stride + c of
/// an array. The array is either `plain` (float32, bfloat16 or float16, aligned) or `packed`.
struct StoredRows {
  std::int64_t rows = 0;
  std::int64_t first = 0, stride = 0;
  Tensor plain = {};
  std::shared_ptr<const PackedArray> packed = nullptr;
};

/// A matrix [rows, width] whose rows lie in files, or in other memory, in blocks: a fused layer of ours as the several
/// tensors of another program. Views only: `files` keep the memory valid. Nobody writes the elements.
struct StoredMatrix {
  std::int64_t width = 0;
  std::vector<StoredRows> blocks;  ///< in the order of the rows; none is empty
  std::vector<std::shared_ptr<const MappedFile>> files;

  std::int64_t rows() const {
    std::int64_t all = 0;
    for (const auto& block : blocks) all += block.rows;
    return all;
  }
  /// Bytes that the elements take where they lie; of a packed array, its share.
  std::int64_t bytes() const {
    double all = 0;
    for (const auto& block : blocks) {
      const auto elements = static_cast<double>(block.rows) * static_cast<double>(width);
      const auto& packed = block.packed;
      all += elements * (packed ? static_cast<double>(packed->bytes()) / static_cast<double>(packed->size())
                                : static_cast<double>(size_of(block.plain.dtype())));
    }
    return static_cast<std::int64_t>(all + 0.5);
  }
};

/// The rows of a matrix in memory, one after the other.
inline StoredMatrix dense_rows(const Tensor& matrix) {
  const auto& shape = matrix.shape();
  return {.width = shape[1], .blocks = {{.rows = shape[0], .stride = shape[1], .plain = matrix}}, .files = {}};
}

}  // namespace tessera
