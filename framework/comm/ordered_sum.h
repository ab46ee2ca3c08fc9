#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "framework/tensor/dtype.h"

namespace tessera {

/// out[i] = (((sources[0][i] + sources[1][i]) + sources[2][i]) + ...), added in float (in double for doubles, exactly
/// for integers) and rounded once to the type, for `count` elements; written to every one of `outs`. An out may be one
/// of the sources, and overlaps no other. The same bits for any cut of the elements into ranges.
/// Throws ShapeError for uint8.
void ordered_sum(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count,
                 DType type);

/// The greatest of the sources' elements, floats; NaN where one of them is NaN. `outs` as above.
void greatest(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count);

}  // namespace tessera
