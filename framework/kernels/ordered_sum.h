#pragma once

#include <cstddef>
#include <span>

#include "framework/tensor/dtype.h"

namespace tessera::kernels {

// Reductions over the arrays of several ranks, in the calling thread. Arrays are given as pointers to bytes that hold
// elements of one type; the caller owns them. An output may be one of the sources, but must not overlap any other
// source.

/// out[i] = ((sources[0][i] + sources[1][i]) + sources[2][i]) + ... for `count` elements, written to every array of
/// `outs` and `streams`. 16-bit floats are added in fp32 and rounded once at the end; fp32 is added in fp32, double in
/// double, integers exactly.
///
/// The summands are added in the order of `sources`, so the bits of the result are the same on every rank, for any
/// division of the elements into ranges, and on every instruction set. Throws ShapeError for uint8.
///
/// `streams` are outputs in memory that another core reads next. They are written with non-temporal stores, which
/// bypass the caches: a store to a cache line that the other core still holds costs about ten times as much as a store
/// to a line that no core holds.
void ordered_sum(std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                 std::span<std::byte* const> streams, std::size_t count, DType type);

/// Elementwise maximum of the sources, `count` floats each, written to every array of `outs`; NaN where any source is
/// NaN.
void greatest(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count);

/// Copies `count` bytes; the two ranges must not overlap. For copies between the buffers of ranks: the `rep movsb` of
/// memcpy runs at a tenth of the speed on some processors if both addresses have nearly the same offset in their pages.
void copy_bytes(const std::byte* from, std::byte* to, std::size_t count);
/// As copy_bytes, with non-temporal stores: for memory that another core reads next (see ordered_sum).
void stream_bytes(const std::byte* from, std::byte* to, std::size_t count);

}  // namespace tessera::kernels
