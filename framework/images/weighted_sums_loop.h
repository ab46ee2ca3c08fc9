#pragma once

#include "framework/images/weighted_sums.h"

namespace tessera::images {

/// The sums [first, first + Width) of weighted_sums. Compiled once for each instruction set: internal linkage, and no
/// function of a library.
template <int Width>
static inline __attribute__((always_inline)) void weighted_block(const WeightedSums& sums, std::size_t first) {
  std::int32_t total[Width];
  for (int i = 0; i < Width; ++i) total[i] = std::int32_t{1} << (sums.shift - 1);
  const auto* in = sums.in + first;
  for (int k = 0; k < sums.count; ++k, in += sums.stride) {
    const auto weight = sums.weights[k];
    for (int i = 0; i < Width; ++i) total[i] += weight * in[i];
  }
  for (int i = 0; i < Width; ++i) {
    const auto level = total[i] >> sums.shift;
    sums.out[first + static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(level < 0     ? 0
                                                                              : level > 255 ? 255
                                                                                            : level);
  }
}

static inline __attribute__((always_inline)) void weighted_sums_loop(const WeightedSums& sums) {
  constexpr int block = 48;
  std::size_t first = 0;
  for (; first + block <= sums.width; first += block) weighted_block<block>(sums, first);
  for (; first + 8 <= sums.width; first += 8) weighted_block<8>(sums, first);
  for (; first < sums.width; ++first) weighted_block<1>(sums, first);
}

}  // namespace tessera::images
