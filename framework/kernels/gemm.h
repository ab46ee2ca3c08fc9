#pragma once

#include <cstdint>

#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// One operand of a matrix product. Element (i, k), where k is the index that is summed over, lies at
/// at[i * across + k * along]. One of the two strides is 1: along == 1 means that k is the inner (contiguous) index.
/// Does not own the memory.
struct Factor {
  const float* at;
  std::int64_t across, along;
};

/// c = a b^T + bias, or c += a b^T when `add`; if `act` is not none, also y = act(c).
///
///   a      [M, K], b [N, K] in the sense of Factor
///   c, y   [M, N], dense
///
/// Internal to this component: linear.h checks the extents and is what other components call.
struct Product {
  std::int64_t M, N, K;
  Factor a, b;
  float* c;
  bool add = false;
  const float* bias = nullptr;  // [N], or null. `bias` excludes `add`; `act` requires k to be a's inner index
  Activation act = Activation::none;
  float* y = nullptr;
};

/// Compute `product` with the kernels of chosen_isa(): our own register tiles for avx2 and avx512, OpenBLAS for
/// portable. The blocking and the order of every sum depend on M, N, K and the instruction set only, never on the
/// number of threads. Uses scratch slots 0, 1 and 2.
void multiply(Threads& threads, const Product& product);

}  // namespace tessera
