#include "framework/kernels/dropout.h"

#include <algorithm>
#include <cmath>

#include "framework/kernels/extents.h"

namespace tessera {
namespace {

constexpr std::size_t tile = 4096;

std::size_t elements_per_sample(const DropoutMask& mask, std::size_t elements) {
  must(mask.rate >= 0 && mask.rate < 1, "a dropout rate is in [0, 1)");
  if (mask.rate == 0) return elements;
  if (mask.sample_ids.empty() || elements % mask.sample_ids.size() != 0) {
    throw ShapeError(
        text("dropout: ", elements, " values are no whole number for each of ", mask.sample_ids.size(), " samples"));
  }
  return elements / mask.sample_ids.size();
}

/// Calls at(element of the batch, factor) for the whole batch.
template <class At>
void for_each(Threads& threads, const DropoutMask& mask, std::size_t elements, const At& at) {
  const auto per_sample = elements_per_sample(mask, elements);
  const auto limit = static_cast<std::uint64_t>(std::ceil(mask.rate * 0x1p32));
  const auto factor = static_cast<float>(1 / (1 - mask.rate));
  threads.parallel_for(elements, tile, [&](std::size_t first, std::size_t last) {
    for (auto i = first; i < last; ++i) {
      if (limit == 0) {
        at(i, 1.0F);
        continue;
      }
      const auto id = static_cast<std::uint64_t>(mask.sample_ids[i / per_sample]);
      const auto element = static_cast<std::uint64_t>(mask.first_element) + i % per_sample;
      at(i, mask.key.words(id, element / 4)[element % 4] < limit ? 0.0F : factor);
    }
  });
}

}  // namespace

void dropout_add_forward(Threads& threads, const DropoutMask& mask, std::span<const float> x,
                         std::span<const float> residual, std::span<float> y) {
  expect_values("dropout", "y", y.size(), static_cast<std::int64_t>(x.size()));
  if (!residual.empty()) expect_values("dropout", "residual", residual.size(), static_cast<std::int64_t>(x.size()));
  for_each(threads, mask, x.size(), [&](std::size_t i, float factor) {
    const float kept = factor == 0 ? 0.0F : x[i] * factor;
    y[i] = residual.empty() ? kept : residual[i] + kept;
  });
}

void dropout_backward(Threads& threads, const DropoutMask& mask, std::span<const float> dy, std::span<float> dx) {
  expect_values("dropout", "dx", dx.size(), static_cast<std::int64_t>(dy.size()));
  for_each(threads, mask, dy.size(), [&](std::size_t i, float factor) { dx[i] = factor == 0 ? 0.0F : dy[i] * factor; });
}

}  // namespace tessera
