#pragma once

#include <cstddef>

#include "framework/kernels/linear.h"

namespace tessera {

/// y[i] = gelu(x[i]) for one range, in the calling thread; y may be x. For kernels that have the range in their cache.
/// `act` is gelu_tanh or gelu_erf. Internal to this room.
void gelu_range(Activation act, const float* x, float* y, std::size_t size);

}  // namespace tessera
