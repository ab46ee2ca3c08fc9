#pragma once

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// Copies the elements of `from` to `into`, in order, converting between floating-point types or between integer types.
/// `from` may be at any address (unaligned), as tensors in files are. Throws ShapeError if the numbers of elements
/// differ; ConfigError, naming both types, for a conversion between floating-point and integer types, and for an
/// integer that the new type cannot represent.
void copy_converted(const Tensor& from, const Tensor& into);

/// Copies the elements of the box `part` from `from`, which holds the elements of `from_box`, to `into`, which holds
/// those of `into_box`, converting as copy_converted does. Both boxes contain `part`.
void copy_box(const Box& part, const Tensor& from, const Box& from_box, const Tensor& into, const Box& into_box);

}  // namespace tessera::checkpoint
