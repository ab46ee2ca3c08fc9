#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/threads.h"

namespace tessera {

/// Some heads inside wider rows: `rows` rows of `stride` floats, `channels` of each head.
struct HeadsInRows {
  std::int64_t rows, stride, channels;
};

/// dense [rows, heads, channels] = the heads of x that begin at `offsets` in each row.
void gather_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> x,
                  std::span<float> dense);

/// The other way: writes the heads of x, leaves the rest of its rows alone.
void scatter_heads(Threads& threads, HeadsInRows e, std::span<const std::int64_t> offsets, std::span<const float> dense,
                   std::span<float> x);

}  // namespace tessera
