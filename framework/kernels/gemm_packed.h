#pragma once

#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_tiles.h"

namespace tessera {

/// multiply() with register tiles of our own. The output is cut into tasks by its extents. A task packs its part of b
/// into panels, a block of k at a time, and lets strips of a pass over them; a is read where it lies if k is its inner
/// index, else packed as well. Sums over k run block by block in order: each block from zero in the tile, then added to
/// c.
void multiply_packed(Threads& threads, const TileKernels& kernels, const Product& product);

}  // namespace tessera
