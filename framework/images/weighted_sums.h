#pragma once

#include <cstddef>
#include <cstdint>

namespace tessera::images {

/// Arguments of weighted_sums.
struct WeightedSums {
  const std::uint8_t* in;
  std::size_t stride;  ///< bytes from one operand of a sum to the next
  const std::int32_t* weights;
  int count;  ///< operands of each sum
  int shift;  ///< fraction bits of the weights
  std::uint8_t* out;
  std::size_t width;  ///< sums
};

/// out[i] = (sum over k < count of weights[k] in[k stride + i]) / 2^shift for i < width, rounded to nearest (halves up)
/// and clipped to 0 ... 255. Sums must fit into 32 bits. Chooses vector instructions of the processor.
void weighted_sums(const WeightedSums& sums);

/// The same for one instruction set.
void weighted_sums_portable(const WeightedSums& sums);
void weighted_sums_avx2(const WeightedSums& sums);
/// Whether the processor has AVX2.
bool has_avx2();

}  // namespace tessera::images
