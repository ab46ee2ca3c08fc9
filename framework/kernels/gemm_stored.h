#pragma once

#include <cstdint>

#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_tiles.h"

namespace tessera::kernels {

/// The box of a stored factor's matrix with `count` of its rows or columns from `first` on and `steps` indices k.
MatrixBox box_of(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k, std::int64_t steps);

/// Where these elements of a factor lie, row by row or, if k is the outer index, k by k; nothing if there are none, or
/// if those of a stored factor are not in one block.
PlainRows rows_in_place(const Factor& factor, std::int64_t first, std::int64_t count, std::int64_t k,
                        std::int64_t steps);

/// Packs columns [first, last) of the stored factor `b`, `elements` of its k from `k` on, into panels `apart` words
/// apart, as Packing::along and Packing::across do for dense factors. Rows that lie in one block in a type that the
/// tiles read are packed from there; of others, a panel is first copied to scratch memory, in the type of `b`.
void pack_stored(const TileKernels& t, const Factor& b, std::int64_t first, std::int64_t last, std::int64_t k,
                 std::int64_t elements, std::int64_t apart, float* to);

}  // namespace tessera::kernels
