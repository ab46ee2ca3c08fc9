#pragma once

#include <cstdint>

#include "framework/kernels/linear.h"

namespace tessera {

/// y[i] = act(x[i]) for one short row that is in the cache; y may be x. act is gelu_tanh or gelu_erf. Internal to this
/// room.
void activate(Activation act, const float* x, float* y, std::int64_t size);

}  // namespace tessera
