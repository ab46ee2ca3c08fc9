#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/tensor/tensor.h"

namespace tessera::checkpoint {

/// Index of the first element that is infinite or NaN; the number of elements if there is none. `tensor` may be at any
/// address (unaligned); integers are always finite.
std::size_t first_not_finite(const Tensor& tensor);

/// Of consecutive elements of a tensor, the sum modulo 2^64 of a hash of each: of `name` (name_id of the tensor), its
/// index, of which `first` is the first, and its value. Parts of a tensor, in any order, add up to the whole.
std::uint64_t digest_of(std::span<const float> values, std::uint64_t name, std::uint64_t first);

}  // namespace tessera::checkpoint
