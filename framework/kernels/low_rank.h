#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Consecutive rows of a factor of an adapter, and the outputs of a linear layer that they are for.
struct RowBlock {
  std::int64_t in_layer, in_factor, count;  ///< first output of the layer, first row of the factor, number of rows
};

/// The factor b [.., rank] of one adapter among the columns [first, first + rank) of `wide` [out, width], which has a
/// row for each output of a layer and the columns of all its adapters.
struct FactorPlace {
  std::span<const RowBlock> blocks;
  std::int64_t rank, first, width;
};

/// Writes `scale` * b to its place in `wide`. Elements of other rows and columns stay unchanged.
void place_factor(Threads& threads, const FactorPlace& place, float scale, std::span<const float> b,
                  std::span<float> wide);

/// The reverse: db += `scale` * the elements of its place in `wide`.
void take_factor(Threads& threads, const FactorPlace& place, float scale, std::span<const float> wide,
                 std::span<float> db);

}  // namespace tessera::kernels
