#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Heads inside wider rows: `rows` rows of `stride` floats; each head has `channels` consecutive floats of a row.
struct HeadsInRows {
  std::int64_t rows, stride, channels;
};

/// Copies the heads of x that begin at `offsets` in each row into one dense array.
///
///   x         [rows, stride]
///   offsets   [heads]                   in floats from the beginning of a row
///   dense     [rows, heads, channels]   written
///
/// Throws ShapeError if a size differs, BugError if a head leaves its row.
void gather_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> x,
                  std::span<float> dense);

/// Inverse of gather_heads: writes the heads of x from `dense`, and leaves the rest of each row unchanged. Throws as
/// gather_heads.
void scatter_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> dense,
                   std::span<float> x);

}  // namespace tessera::kernels
