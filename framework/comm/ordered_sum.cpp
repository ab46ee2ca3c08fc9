#include "framework/comm/ordered_sum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "framework/base/error.h"

namespace tessera {
namespace {

constexpr std::size_t block = 1024;  // elements: their sums stay in the nearest cache

/// Sums elements of T in Sum, a block at a time.
template <class T, class Sum>
void sum_blocks(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count) {
  std::array<Sum, block> sum;
  std::array<T, block> rounded;
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t here = std::min(block, count - first);
    const auto* x = reinterpret_cast<const T*>(sources[0]) + first;
    for (std::size_t i = 0; i < here; ++i) sum[i] = static_cast<Sum>(x[i]);
    for (const std::byte* const source : sources.subspan(1)) {
      x = reinterpret_cast<const T*>(source) + first;
      for (std::size_t i = 0; i < here; ++i) sum[i] += static_cast<Sum>(x[i]);
    }
    for (std::size_t i = 0; i < here; ++i) rounded[i] = static_cast<T>(sum[i]);
    for (std::byte* const out : outs) std::memcpy(out + first * sizeof(T), rounded.data(), here * sizeof(T));
  }
}

}  // namespace

void ordered_sum(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count,
                 DType type) {
  switch (type) {
    case DType::float32:
      return sum_blocks<float, float>(sources, outs, count);
    case DType::bfloat16:
      return sum_blocks<bfloat16, float>(sources, outs, count);
    case DType::float16:
      return sum_blocks<float16, float>(sources, outs, count);
    case DType::float64:
      return sum_blocks<double, double>(sources, outs, count);
    case DType::int64:
      return sum_blocks<std::uint64_t, std::uint64_t>(sources, outs, count);
    case DType::int32:
      return sum_blocks<std::uint32_t, std::uint32_t>(sources, outs, count);
    case DType::uint8:
      break;
  }
  throw ShapeError(text("sum over processes: no sums of ", name_of(type)));
}

void greatest(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count) {
  std::array<float, block> most;
  for (std::size_t first = 0; first < count; first += block) {
    const std::size_t here = std::min(block, count - first);
    std::memcpy(most.data(), sources[0] + first * sizeof(float), here * sizeof(float));
    for (const std::byte* const source : sources.subspan(1)) {
      const auto* x = reinterpret_cast<const float*>(source) + first;
      for (std::size_t i = 0; i < here; ++i) most[i] = x[i] > most[i] || x[i] != x[i] ? x[i] : most[i];
    }
    for (std::byte* const out : outs) std::memcpy(out + first * sizeof(float), most.data(), here * sizeof(float));
  }
}

}  // namespace tessera
