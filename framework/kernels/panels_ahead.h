#pragma once

#include <algorithm>
#include <cstdint>

#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_stored.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/kernels/task_grid.h"

namespace tessera::kernels {

// How a blocked product (gemm_packed.cpp) counts along k, and what it fetches ahead. Internal to this component.

/// Words of k that hold `elements` elements.
inline std::int64_t words_in(const TileKernels& t, std::int64_t elements) { return ceil_div(elements, t.elements); }

/// Elements of k in `steps` words from word k on; the last word of a product may have fewer than the others.
inline std::int64_t elements_in(const TileKernels& t, const MatrixProduct& p, std::int64_t k, std::int64_t steps) {
  return std::min(steps * t.elements, p.K - k * t.elements);
}

/// Rows or columns [first, last) of a factor of `p` in words [k, k + steps), which a task will pack: a task fetches
/// them into the cache bit by bit while it multiplies, so that packing does not wait for memory. Packing without it
/// took 6 % of a step of GPT-2 124M with 256 tokens in fp32 (Zen 4).
class PanelsAhead {
 public:
  PanelsAhead() = default;
  PanelsAhead(const TileKernels& t, const MatrixProduct& p, const Factor& factor, std::int64_t first, std::int64_t last,
              std::int64_t k, std::int64_t steps) {
    const std::int64_t elements = elements_in(t, p, k, steps), cols = last - first;
    const bool inner = factor.along == 1;
    const auto from = rows_in_place(factor, first, cols, k * t.elements, elements);
    if (from.at == nullptr) return;
    const auto size = static_cast<std::int64_t>(size_of(from.type));
    at_ = from.at;
    row_end_ = (inner ? elements : cols) * size;
    stride_ = from.stride * size;
    rows_ = inner ? cols : elements;
  }
  /// Number of cache lines that are left to fetch, about.
  std::int64_t lines() const { return rows_ * ceil_div(row_end_, line); }
  void fetch(std::int64_t lines) {
    for (; lines > 0 && rows_ > 0; --lines) {
      __builtin_prefetch(at_ + in_row_, 0, 2);
      in_row_ += line;
      if (in_row_ < row_end_) continue;
      in_row_ = 0;
      at_ += stride_;
      --rows_;
    }
  }

 private:
  static constexpr std::int64_t line = 64;
  const std::byte* at_ = nullptr;
  std::int64_t rows_ = 0, in_row_ = 0, row_end_ = 0, stride_ = 0;  ///< strides in bytes
};

}  // namespace tessera::kernels
