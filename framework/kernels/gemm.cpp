#include "framework/kernels/gemm.h"

#include <algorithm>
#include <array>

#include "framework/kernels/cpu.h"
#include "framework/kernels/gemm_blas.h"
#include "framework/kernels/gemm_blocks.h"
#include "framework/kernels/gemm_packed.h"

namespace tessera::kernels {

// K == 0 leaves c = bias (or c unchanged), which only BLAS handles.
const TileKernels* tiles_of(const MatrixProduct& p) {
#if defined(__x86_64__)
  const TileKernels* pairs = pair_tiles();
  if (p.K > 0 && pairs != nullptr && multiplies_pairs(p)) return pairs;
  if (p.K > 0 && chosen_isa() >= Isa::avx512) return &tiles_avx512();
  if (p.K > 0 && chosen_isa() == Isa::avx2) {
    static const TileKernels fitted = fitted_to(tiles_avx2(), l2_bytes());
    return &fitted;
  }
#endif
  return nullptr;
}

void multiply(Threads& threads, const MatrixProduct& p) {
  if (p.M == 0 || p.N == 0) return;
  const TileKernels* tiles = tiles_of(p);
  tiles != nullptr ? multiply_packed(threads, *tiles, p) : multiply_blas(threads, p);
}

void multiply_group(Threads& threads, std::span<const MatrixProduct> products) {
  constexpr std::size_t at_once = 64;
  for (; !products.empty(); products = products.subspan(std::min(at_once, products.size()))) {
    std::array<ProductOfGroup, at_once> group;
    std::size_t size = 0;
    for (const auto& p : products.first(std::min(at_once, products.size()))) {
      const TileKernels* tiles = tiles_of(p);
      if (p.M == 0 || p.N == 0) continue;
      if (tiles != nullptr)
        group[size++] = {&p, tiles};
      else
        multiply_blas(threads, p);
    }
    multiply_packed_group(threads, std::span(group).first(size));
  }
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
