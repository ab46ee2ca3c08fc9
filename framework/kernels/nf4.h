#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "framework/tensor/stored_matrix.h"

namespace tessera::kernels {

// NF4, the 4-bit storage type of QLoRA, with the codes and values of bitsandbytes to the bit. An array is divided into
// blocks of 64 elements (the last may be shorter), whatever its rows. A block has the maximum of its absolute values;
// an element is the code of the nearest of 16 values to element x (1 / maximum), of two equally near ones the smaller.
// Two codes are in a byte, the first in its upper half; a missing last one is 7. Sources: Dettmers et al. 2023,
// arXiv:2305.14314; the codes and values of bitsandbytes 0.50.

inline constexpr std::int64_t nf4_block = 64;          ///< elements with a common maximum
inline constexpr std::int64_t nf4_nested_block = 256;  ///< maxima with a common maximum, see NestedMaxima

/// The 16 values, ascending; value 7 is 0.
const std::array<float, 16>& nf4_values();
/// The 256 values of 8-bit codes, ascending (bitsandbytes: create_dynamic_map).
const std::array<float, 256>& dynamic_values();

constexpr std::int64_t nf4_blocks(std::int64_t elements) { return (elements + nf4_block - 1) / nf4_block; }
constexpr std::int64_t nf4_bytes(std::int64_t elements) { return (elements + 1) / 2; }

/// Quantises `x`, finite numbers, which begin at a multiple of nf4_block in their array.
///
///   codes    [nf4_bytes(size of x)]    written
///   maxima   [nf4_blocks(size of x)]   written
void nf4_quantise(std::span<const float> x, std::span<std::uint8_t> codes, std::span<float> maxima);

/// The maxima of an array in 8 bits ("double quantisation"): maximum i is dynamic_values()[codes[i]] x maxima[i / 256]
/// + offset.
struct NestedMaxima {
  std::vector<std::uint8_t> codes;
  std::vector<float> maxima;
  float offset = 0;  ///< mean of the maxima of the array
};
/// Of all maxima of an array. The mean is summed in the order of PyTorch with vectors of 8 floats on one thread.
NestedMaxima nf4_nest(std::span<const float> maxima);

/// An array in NF4. Views only: the owner of the memory must outlive it.
struct Nf4Parts {
  std::int64_t size = 0;  ///< number of elements
  std::span<const std::uint8_t> codes;
  std::span<const float> maxima;               ///< of blocks; if they are nested, of blocks of maxima
  std::span<const std::uint8_t> nested_codes;  ///< empty: the maxima are not nested
  float offset = 0;
  DType type = DType::float32;  ///< values are rounded to it
};
/// Throws ConfigError if a part has another size than `size` needs, or `type` is not float32, bfloat16 or float16.
std::shared_ptr<const PackedArray> nf4_array(const Nf4Parts& parts);

}  // namespace tessera::kernels
