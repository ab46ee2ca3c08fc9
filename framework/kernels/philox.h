#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/base/random.h"

namespace tessera::kernels {

/// words[4 i .. 4 i + 3] = key.words(id, first_block + i) for i in [0, blocks), vectorized, in the calling thread.
/// `words` has room for 4 * blocks words.
void philox_words(const RandomKey& key, std::uint64_t id, std::uint64_t first_block, std::size_t blocks,
                  std::uint32_t* words);

/// Threshold of dropout: an element is dropped if its word is below ceil(rate * 2^32), at most 2^32 - 1. `rate` is in
/// [0, 1).
std::uint32_t dropout_limit(double rate);

}  // namespace tessera::kernels
