#pragma once

#include <algorithm>
#include <limits>

#include "framework/kernels/scratch.h"

namespace tessera::kernels {

/// Leaves NaN in the scratch memory of this thread, as an earlier call may.
inline void spoil_scratch() {
  constexpr std::size_t floats = std::size_t{1} << 17;
  const Scratch packed(floats), operands(floats), tiles(floats), more(floats);
  for (const auto* scratch : {&packed, &operands, &tiles, &more})
    std::ranges::fill(scratch->floats(), std::numeric_limits<float>::quiet_NaN());
}

}  // namespace tessera::kernels
