#pragma once

#include <span>

#include "framework/tensor/dtype.h"

namespace tessera::kernels {

/// As round_to (type_conversion.h), in the calling thread: for use inside a tile of a loop.
void round_range(DType type, std::span<float> x);

}  // namespace tessera::kernels
