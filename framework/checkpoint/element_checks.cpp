#include "framework/checkpoint/element_checks.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::checkpoint {
namespace {

/// Index of the first of `count` words at `at` whose exponent bits are all ones (infinite or NaN); `count` if there is
/// none.
template <class Word>
std::size_t first_with_full_exponent(const std::byte* at, std::size_t count, Word exponent) {
  const auto is_full = [&](std::size_t i) -> Word {
    Word word;
    std::memcpy(&word, at + i * sizeof word, sizeof word);
    return (word & exponent) == exponent ? 1 : 0;
  };
  constexpr std::size_t block = 1024;  // without an exit, so that its loop is vectorised
  for (std::size_t begin = 0; begin < count; begin += block) {
    const auto end = std::min(count, begin + block);
    Word any = 0;
    for (auto i = begin; i < end; ++i) any |= is_full(i);
    for (auto i = begin; any != 0 && i < end; ++i)
      if (is_full(i) != 0) return i;
  }
  return count;
}

/// A permutation of 64-bit numbers that changes half of the bits on average (the finalizer of SplitMix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

std::size_t first_not_finite(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.elements());
  const auto* at = tensor.raw().data();
  switch (tensor.dtype()) {
    case DType::float32:
      return first_with_full_exponent<std::uint32_t>(at, count, 0x7F800000U);
    case DType::bfloat16:
      return first_with_full_exponent<std::uint16_t>(at, count, 0x7F80U);
    case DType::float16:
      return first_with_full_exponent<std::uint16_t>(at, count, 0x7C00U);
    case DType::float64:
      return first_with_full_exponent<std::uint64_t>(at, count, 0x7FF0000000000000ULL);
    case DType::int64:
    case DType::int32:
    case DType::uint8:
      return count;
  }
  return count;
}

std::uint64_t digest_of(std::span<const float> values, std::uint64_t name, std::uint64_t first) {
  std::uint64_t sum = 0;
  for (const auto value : values) sum += mixed(name + mixed(first++) + std::bit_cast<std::uint32_t>(value));
  return sum;
}

}  // namespace tessera::checkpoint
