#include "framework/kernels/gemm.h"

#include "framework/kernels/gemm_blas.h"

namespace tessera {

void multiply(Threads& threads, const Product& p) {
  if (p.M == 0 || p.N == 0) return;
  multiply_blas(threads, p);
}

}  // namespace tessera
