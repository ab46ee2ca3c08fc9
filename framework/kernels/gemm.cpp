#include "framework/kernels/gemm.h"

#include "framework/kernels/cpu.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/gemm_packed.h"

namespace tessera::kernels {

void multiply(Threads& threads, const MatrixProduct& p) {
  if (p.M == 0 || p.N == 0) return;
    // K == 0 leaves c = bias (or c unchanged), which only the BLAS path handles.
#if defined(__x86_64__)
  const auto isa = chosen_isa();
  const TileKernels* pairs = pair_tiles();
  if (p.K > 0 && pairs != nullptr && multiplies_pairs(p)) return multiply_packed(threads, *pairs, p);
  if (p.K > 0 && isa >= Isa::avx512) return multiply_packed(threads, tiles_avx512(), p);
  if (p.K > 0 && isa == Isa::avx2) return multiply_packed(threads, tiles_avx2(), p);
#endif
  multiply_blas(threads, p);
}

const TileKernels* pair_tiles() {
#if defined(__x86_64__)
  switch (chosen_isa()) {
    case Isa::amx:
      return &tiles_amx();
    case Isa::avx512_bf16:
      return &tiles_avx512_bf16();
    default:
      break;
  }
#endif
  return nullptr;
}

}  // namespace tessera::kernels
