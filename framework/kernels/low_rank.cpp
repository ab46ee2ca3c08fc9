#include "framework/kernels/low_rank.h"

namespace tessera::kernels {
namespace {

/// Calls each(index of a row's first element in the factor, that in `wide`) for all rows of the factor.
template <class Each>
void for_rows(Threads& threads, const FactorPlace& place, const Each& each) {
  for (const auto& block : place.blocks)
    threads.parallel_for(static_cast<std::size_t>(block.count), 512, [&](std::size_t first, std::size_t last) {
      for (auto row = static_cast<std::int64_t>(first); row < static_cast<std::int64_t>(last); ++row)
        each(static_cast<std::size_t>((block.in_factor + row) * place.rank),
             static_cast<std::size_t>((block.in_layer + row) * place.width + place.first));
    });
}

}  // namespace

void place_factor(Threads& threads, const FactorPlace& place, float scale, std::span<const float> b,
                  std::span<float> wide) {
  const auto rank = static_cast<std::size_t>(place.rank);
  for_rows(threads, place, [&](std::size_t in_factor, std::size_t in_wide) {
    for (std::size_t k = 0; k < rank; ++k) wide[in_wide + k] = scale * b[in_factor + k];
  });
}

void take_factor(Threads& threads, const FactorPlace& place, float scale, std::span<const float> wide,
                 std::span<float> db) {
  const auto rank = static_cast<std::size_t>(place.rank);
  for_rows(threads, place, [&](std::size_t in_factor, std::size_t in_wide) {
    for (std::size_t k = 0; k < rank; ++k) db[in_factor + k] += scale * wide[in_wide + k];
  });
}

}  // namespace tessera::kernels
