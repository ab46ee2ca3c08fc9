#pragma once

#include "framework/tensor/box.h"
#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// Copy the elements of `from` over those of `into`, in order, converting between the floating types or between the
/// integer types. `from` may lie at any address, as tensors in files do. Throws ShapeError when the counts differ;
/// ConfigError, naming both types, for a float into an integer or the reverse, and for an integer that is too large for
/// its new type.
void copy_converted(const Tensor& from, const Tensor& into);

/// Copies the elements of `part` from memory that has the elements of `from_box` to memory that has those of
/// `into_box`, converting as copy_converted does. Both boxes contain `part`.
void copy_box(const Box& part, const Tensor& from, const Box& from_box, const Tensor& into, const Box& into_box);

}  // namespace tessera::checkpoint
