#pragma once

#include "framework/kernels/gemm.h"

namespace tessera {

/// multiply() with OpenBLAS, called single-threaded on fixed tiles: the portable path, and the reference of tests and
/// benchmarks on every machine. OpenBLAS chooses its own kernels by the processor (OPENBLAS_CORETYPE changes that).
void multiply_blas(Threads& threads, const Product& product);

}  // namespace tessera
