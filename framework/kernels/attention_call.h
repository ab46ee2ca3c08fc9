#pragma once

#include "framework/kernels/attention.h"

namespace tessera {

// How attention is cut, between attention.cpp and the code of the chosen instruction set. Internal to this room.

/// Queries that one block works on: the lanes of its score tiles, which hold keys by queries.
inline constexpr std::int64_t query_block = 48;
/// Scratch slots (threads.h) of a block, and of the key gradients of a group or a whole call.
inline constexpr int tile_slot = 2, group_slot = 3;

/// What a call was given. The backward pass leaves no `o` to write; the forward pass has none of the gradients.
struct AttentionCall {
  const AttentionExtents& e;
  const VisibleKeys& visible;
  const DropoutMask& mask;
  const float *q, *k, *v, *o, *lse, *d_o;
  float *out, *lse_out, *dq, *dk, *dv;
};

/// Where a row of a head begins in its buffer.
inline std::int64_t row_of(const HeadRows& rows, std::int64_t row, std::int64_t group, std::int64_t head = 0) {
  return row * rows.row_stride + rows.offset + group * rows.group_stride + head * rows.head_stride;
}

/// Some queries of one head: query t of sample b is row b * T + t.
struct QueryBlock {
  std::int64_t b, g, head_in_group, head, first, count;
};

inline QueryBlock query_block_of(const AttentionExtents& e, std::int64_t b, std::int64_t head, std::int64_t first,
                                 std::int64_t size) {
  const auto heads = e.H / e.G;
  return {b, head / heads, head % heads, head, first, first + size < e.T ? size : e.T - first};
}

/// The gradients of the keys and values of one group, [S, padded D] each, dense.
struct KeyGradients {
  float *dk, *dv;
};

}  // namespace tessera
