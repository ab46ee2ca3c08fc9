#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/random.h"

namespace tessera::kernels {

/// words[4 i .. 4 i + 3] = key.words(id, first_block + i) for i in [0, blocks), vectorized, in the calling thread.
/// `words` has room for 4 * blocks words and is owned by the caller.
void philox_words(const RandomKey& key, std::uint64_t id, std::uint64_t first_block, std::size_t blocks,
                  std::uint32_t* words);

/// Threshold of dropout with the rate `rate`, which is in [0, 1): an element is dropped if its 32-bit word is below
/// min(ceil(rate * 2^32), 2^32 - 1).
std::uint32_t dropout_limit(double rate);

}  // namespace tessera::kernels
