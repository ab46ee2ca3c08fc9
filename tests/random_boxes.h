#pragma once

#include <random>
#include <vector>

#include "framework/tensor/box.h"

namespace tessera {

/// Divides a box by random planes, as layouts do.
inline void divide_at_random(const Box& box, std::mt19937& random, std::vector<Box>& into) {
  std::vector<std::size_t> divisible;
  for (std::size_t dim = 0; dim < box.extent.size(); ++dim)
    if (box.extent[dim] > 1) divisible.push_back(dim);
  if (divisible.empty() || random() % 4 == 0) return into.push_back(box);
  const auto dim = divisible[random() % divisible.size()];
  auto low = box, high = box;
  low.extent[dim] = 1 + static_cast<std::int64_t>(random() % static_cast<std::size_t>(box.extent[dim] - 1));
  high.begin[dim] += low.extent[dim];
  high.extent[dim] -= low.extent[dim];
  divide_at_random(low, random, into);
  divide_at_random(high, random, into);
}

}  // namespace tessera
