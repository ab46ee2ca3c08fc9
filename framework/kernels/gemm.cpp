#include "framework/kernels/gemm.h"

#include "framework/kernels/cpu.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/gemm_packed.h"

namespace tessera {

bool multiplies_pairs(const Product& p) {
  // Pairs along k must be words in memory, and whole: rows of an even number of elements, and no last one alone. Few
  // rows, as in decoding, are bound by reading b; the floating-point dot products read it in its own type.
  constexpr std::int64_t few_rows = 32;
  const auto in_pairs = [](const Factor& factor) {
    return factor.type() == DType::bfloat16 && (factor.along != 1 || factor.across % 2 == 0);
  };
  const bool decoding = p.M <= few_rows && p.a.along == 1 && p.b.along == 1;
  return p.K % 2 == 0 && in_pairs(p.a) && in_pairs(p.b) && !decoding;
}

void multiply(Threads& threads, const Product& p) {
  if (p.M == 0 || p.N == 0) return;
    // K == 0 leaves c = bias (or c unchanged), which only the BLAS path handles.
#if defined(__x86_64__)
  const auto isa = chosen_isa();
  if (p.K > 0 && isa >= Isa::avx512_bf16 && multiplies_pairs(p))
    return multiply_packed(threads, tiles_avx512_bf16(), p);
  if (p.K > 0 && isa >= Isa::avx512) return multiply_packed(threads, tiles_avx512(), p);
  if (p.K > 0 && isa == Isa::avx2) return multiply_packed(threads, tiles_avx2(), p);
#endif
  multiply_blas(threads, p);
}

}  // namespace tessera
