#pragma once

#include <bit>

#include "framework/kernels/gemm_tiles.h"
#include "framework/tensor/dtype.h"

namespace tessera::kernels {
/// Kernels of pairs of bfloat16 in plain C++, with the layouts of gemm_tiles.h but smaller tiles and blocks: the
/// blocking of products of pairs is tested on every machine with them. B is TileKernels::block.
namespace emulated {

inline constexpr std::int64_t R = 4, C = 16, vector = 8;

inline float lower(float word) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(word) << 16); }
inline float upper(float word) { return std::bit_cast<float>(std::bit_cast<std::uint32_t>(word) & 0xffff0000U); }

inline float word_of(std::uint16_t even, std::uint16_t odd) {
  return std::bit_cast<float>(std::uint32_t{even} | std::uint32_t{odd} << 16);
}

inline std::int64_t width_of(std::int64_t cols) { return cols >= C ? C : (cols + vector - 1) / vector * vector; }

template <int B>
void tile(const TileCall& t) {
  for (std::int64_t r = 0; r < t.rows; ++r)
    for (std::int64_t j = 0; j < t.cols; ++j) {
      float sum = 0;
      for (std::int64_t k = 0; k < t.depth; ++k) {
        const float a = t.a[r * t.a_row + k / B * B * t.a_step + k % B], b = t.b[k * width_of(t.cols) + j];
        sum += lower(a) * lower(b);
        sum += upper(a) * upper(b);
      }
      if (t.start != nullptr) sum += t.start[r * t.start_row + j];
      t.c[r * t.c_row + j] = sum;
    }
}

/// Packs `cols` columns; element(k, j) is element k, counted singly, of column j.
template <class Element>
void pack_panels(const Element& element, std::int64_t depth, std::int64_t cols, std::int64_t panel, float* dst) {
  for (std::int64_t first = 0; first < cols; first += C, dst += panel) {
    const std::int64_t width = width_of(cols - first);
    for (std::int64_t k = 0; k < depth; ++k)
      for (std::int64_t j = 0; j < width; ++j)
        dst[k * width + j] =
            first + j < cols ? word_of(element(2 * k, first + j), element(2 * k + 1, first + j)) : 0.0F;
  }
}

inline void along(const void* from, std::int64_t across, std::int64_t depth, std::int64_t cols, std::int64_t panel,
                  float* dst) {
  const auto* src = static_cast<const std::uint16_t*>(from);
  pack_panels([&](std::int64_t k, std::int64_t j) { return src[j * across + k]; }, depth, cols, panel, dst);
}

/// Element (k, j) of a factor whose outer index is k, which has `elements` of them; zero beyond.
inline auto outer_elements(const void* from, std::int64_t along, std::int64_t elements) {
  return [=, src = static_cast<const std::uint16_t*>(from)](std::int64_t k, std::int64_t j) {
    return k < elements ? src[k * along + j] : std::uint16_t{0};
  };
}

inline void across(const void* from, std::int64_t along, std::int64_t elements, std::int64_t cols, std::int64_t panel,
                   float* dst) {
  pack_panels(outer_elements(from, along, elements), (elements + 1) / 2, cols, panel, dst);
}

template <int B>
void strips(const void* from, std::int64_t along, std::int64_t elements, std::int64_t rows, std::int64_t strip,
            float* dst) {
  const auto element = outer_elements(from, along, elements);
  const std::int64_t depth = (elements + 1) / 2;
  for (std::int64_t first = 0; first < rows; first += R, dst += strip)
    for (std::int64_t k = 0; k < (depth + B - 1) / B * B; ++k)
      for (std::int64_t r = 0; r < R; ++r)
        dst[k / B * B * R + r * B + k % B] =
            first + r < rows ? word_of(element(2 * k, first + r), element(2 * k + 1, first + r)) : 0.0F;
}

inline void widen(const void* from, std::int64_t count, float* dst) {
  for (std::int64_t i = 0; i < count; ++i) dst[i] = static_cast<float>(static_cast<const bfloat16*>(from)[i]);
}

inline void narrow(const float* src, std::int64_t count, void* dst) {
  for (std::int64_t i = 0; i < count; ++i) static_cast<bfloat16*>(dst)[i] = bfloat16(src[i]);
}

}  // namespace emulated

/// B 1: strips as of AVX512-BF16; B > 1: as of AMX. Blocks of 8 words of k.
template <int B>
const TileKernels& emulated_pairs() {
  using namespace emulated;
  static const TileKernels kernels = {
      .rows = R,
      .cols = C,
      .vector = vector,
      .depth = 8,
      .panels = 3,
      .elements = 2,
      .block = B,
      .tile = tile<B>,
      .float32 = {},
      .bfloat16 =
          {.along = along, .across = across, .strips = strips<B>, .widen = widen, .narrow = narrow, .dots = nullptr},
      .float16 = {}};
  return kernels;
}

}  // namespace tessera::kernels
