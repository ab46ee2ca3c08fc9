#pragma once

#include <cstdint>

#include "framework/kernels/linear.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// One factor of a product. Element (i, k), k being the index that is summed over, lies at at[i * across + k * along];
/// one of the two strides is 1.
struct Factor {
  const float* at;
  std::int64_t across, along;
};

/// c = a b + bias, or c += a b when `add`; then y = act(c) when act is not none. c and y are dense [M, N], a is
/// [M, K] and b [N, K] in the sense of Factor. Internal to this room: linear.h checks extents and calls it.
struct Product {
  std::int64_t M, N, K;
  Factor a, b;
  float* c;
  bool add = false;
  const float* bias = nullptr;  // [N], or none; not with `add`, and as act only where k is a's inner index
  Activation act = Activation::none;
  float* y = nullptr;
};

/// Compute it with the kernels of chosen_isa(): tiles of our own for avx2 and avx512, OpenBLAS for portable. Tiles and
/// the order of every sum follow from M, N, K and the instruction set alone. Uses scratch slots 0, 1 and 2.
void multiply(Threads& threads, const Product& product);

}  // namespace tessera
