#pragma once

#include <cstddef>

#include "framework/kernels/linear.h"

namespace tessera::kernels {

/// y[i] = act(x[i]) for `size` elements, in the calling thread. For a kernel that has just computed the range and still
/// has it in cache (gemm_packed.cpp, gemm_blas.cpp). y may be x. Throws BugError for Activation::none. Internal to this
/// component.
void activation_range(Activation act, const float* x, float* y, std::size_t size);

}  // namespace tessera::kernels
