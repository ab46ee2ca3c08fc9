#include "framework/kernels/heads.h"

#include <algorithm>

#include "framework/kernels/extents.h"

namespace tessera::kernels {
namespace {

void check(HeadsInRows e, std::span<const std::int64_t> offsets, std::size_t x, std::size_t dense) {
  expect_values("heads", "x", x, e.rows * e.stride);
  expect_values("heads", "dense", dense, e.rows * static_cast<std::int64_t>(offsets.size()) * e.channels);
  for (const auto offset : offsets) must(offset >= 0 && offset + e.channels <= e.stride, "heads lie inside their row");
}

/// Calls f(index in x, index in dense) for each head of each row.
template <class F>
void each_head(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, const F& f) {
  constexpr std::size_t rows_of_a_tile = 64;
  const auto heads = static_cast<std::int64_t>(offsets.size());
  threads.parallel_for(static_cast<std::size_t>(e.rows), rows_of_a_tile, [&](std::size_t first, std::size_t last) {
    for (auto r = static_cast<std::int64_t>(first); r < static_cast<std::int64_t>(last); ++r)
      for (std::int64_t h = 0; h < heads; ++h)
        f(r * e.stride + offsets[static_cast<std::size_t>(h)], (r * heads + h) * e.channels);
  });
}

}  // namespace

void gather_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> x,
                  std::span<float> dense) {
  check(e, offsets, x.size(), dense.size());
  each_head(threads, e, offsets,
            [&](std::int64_t from, std::int64_t to) { std::copy_n(x.data() + from, e.channels, dense.data() + to); });
}

void scatter_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> dense,
                   std::span<float> x) {
  check(e, offsets, x.size(), dense.size());
  each_head(threads, e, offsets,
            [&](std::int64_t to, std::int64_t from) { std::copy_n(dense.data() + from, e.channels, x.data() + to); });
}

}  // namespace tessera::kernels
