#include "framework/kernels/gemm.h"

#include "framework/kernels/gemm_blas.h"

namespace tessera {

void multiply(Threads& threads, const Product& p) { multiply_blas(threads, p); }

}  // namespace tessera
