#pragma once

#include <string>

#include "framework/kernels/gemm.h"

namespace tessera::kernels {

/// multiply() with OpenBLAS, which is called single-threaded on fixed blocks of c. This is the portable path, and the
/// reference of tests and benchmarks on every machine. OpenBLAS selects its own kernels by processor; the environment
/// variable OPENBLAS_CORETYPE overrides that.
void multiply_blas(Threads& threads, const MatrixProduct& product);

/// The same product, without bias and activation, with factors and sums in double; each element of c is rounded once.
void multiply_in_double(Threads& threads, const MatrixProduct& product);

/// The configuration of OpenBLAS: version, options, the processor whose kernels it uses; or why it cannot be loaded.
std::string describe_blas();

}  // namespace tessera::kernels
