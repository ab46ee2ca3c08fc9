#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor/dtype.h"

namespace tessera {

/// Arithmetic between arrays of several processes; in the calling thread. Arrays are given as bytes of elements of one
/// type. An out may be one of the sources, and overlaps no other.

/// out[i] = (((sources[0][i] + sources[1][i]) + sources[2][i]) + ...), added in float (in double for doubles, exactly
/// for integers) and rounded once to the type, for `count` elements; written to every one of `outs`. The same bits for
/// any cut of the elements into ranges and on every instruction set. Throws ShapeError for uint8.
///
/// `streams` are further outs, in memory that another core reads next: they are written past the caches, because a line
/// that the other core still holds costs ten times as much to write as one that nobody does.
void ordered_sum(std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                 std::span<std::byte* const> streams, std::size_t count, DType type);

/// The greatest of the sources' elements, floats; NaN where one of them is NaN.
void greatest(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count);

/// to = from, `count` bytes that do not overlap. Unlike memcpy it does not use the processor's own copying of strings,
/// which on some runs at a tenth of the speed when both addresses have nearly the same place in their pages.
void copy_bytes(const std::byte* from, std::byte* to, std::size_t count);
/// The same past the caches, to memory that another core reads next.
void stream_bytes(const std::byte* from, std::byte* to, std::size_t count);

}  // namespace tessera
