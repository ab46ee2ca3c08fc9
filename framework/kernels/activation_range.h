#pragma once

#include <cstddef>

#include "framework/kernels/linear.h"

namespace tessera {

/// y[i] = act(x[i]) for one range, in the calling thread; y may be x. For kernels that have the range in their cache.
/// Any activation but none. Internal to this room.
void activation_range(Activation act, const float* x, float* y, std::size_t size);

}  // namespace tessera
