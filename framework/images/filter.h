#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/images/resize.h"

namespace tessera::images {

/// The bicubic filter along one side: position i of the result is the weighted sum of the positions
/// first[i] ... first[i] + count[i] - 1.
struct Filter {
  std::vector<std::int64_t> first;
  std::vector<int> count;
  int taps = 0;                       ///< the largest count there can be
  std::vector<std::int32_t> weights;  ///< [result, taps]
  int shift = 0;                      ///< fraction bits of the weights

  const std::int32_t* weights_of(std::int64_t i) const { return &weights[static_cast<std::size_t>(i * taps)]; }
};

/// The filter from `from` to `to` positions, both at least 1. Sources: Pillow 11, src/libImaging/Resample.c;
/// PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp, of which only the rounding of the weights differs.
Filter bicubic_filter(std::int64_t from, std::int64_t to, Backend backend);

}  // namespace tessera::images
