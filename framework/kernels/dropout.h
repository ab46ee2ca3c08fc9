#pragma once

#include <cstdint>
#include <span>

#include "framework/base/random.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// Which elements are dropped is a pure function of (key, sample id, element of that sample): the same on every layout.
/// Element e of sample s is dropped when 32-bit word e of the stream s of `key` is below rate * 2^32.
struct DropoutMask {
  RandomKey key;                             ///< made of the seed, the purpose and the site in the model
  std::span<const std::int64_t> sample_ids;  ///< one for each sample of the batch
  double rate = 0;                           ///< share dropped, [0, 1)
  std::int64_t first_element = 0;            ///< where this slice begins in the unsplit sample
};

/// y = residual + x * keep / (1 - rate); `residual` may be empty: none. x, y, residual [samples, elements per sample].
/// y may be x or residual. With rate 0 only the sum is left.
void dropout_add_forward(Threads& threads, const DropoutMask& mask, std::span<const float> x,
                         std::span<const float> residual, std::span<float> y);

/// dx = dy * keep / (1 - rate), the same mask drawn again. dx may be dy.
void dropout_backward(Threads& threads, const DropoutMask& mask, std::span<const float> dy, std::span<float> dx);

}  // namespace tessera
