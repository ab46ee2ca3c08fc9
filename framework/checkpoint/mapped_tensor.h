#pragma once

#include <memory>
#include <optional>

#include "framework/base/files.h"
#include "framework/tensor/box.h"
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

}  // namespace tessera::checkpoint
