#pragma once

#include <functional>

#include "framework/kernels/gemm.h"

namespace tessera {

/// The same product by oneDNN on `threads` OpenMP threads of its own, ready to be called; it refers to the memory of
/// `product`. Empty if this build has no oneDNN, or if that does not compute these types. Activations are not computed.
std::function<void()> dnnl_product(const kernels::MatrixProduct& product, int threads);

/// The version of oneDNN, or why there is none.
const char* describe_dnnl();

}  // namespace tessera
