#pragma once

#include <limits>

#include "framework/kernels/attention.h"
#include "framework/tensor/dtype.h"

namespace tessera::kernels {

// How one attention call is divided into blocks: shared by attention.cpp and the code compiled per instruction set.
// Internal to this component.

/// Queries per block. A tile of scores is stored as [keys][queries], so this is also the number of floats of its rows.
/// 48 is a multiple of every vector length in use (4, 8 and 16 floats).
inline constexpr std::int64_t query_block = 48;

struct TileKernels;

/// The arguments of one call. Members that a pass does not use are empty: the gradients in the forward pass, `out` and
/// `lse_out` in the backward pass. Owns nothing.
struct AttentionCall {
  const AttentionExtents& e;
  const VisibleKeys& visible;
  const DropoutMask& mask;
  Elements q, k, v, o, d_o;
  HeadRows k_rows, v_rows;  ///< where the heads of k and v lie; e.k and e.v unless the call reads a copy of them
  const float* lse = nullptr;
  MutableElements out{}, dq{}, dk{}, dv{};
  float* lse_out = nullptr;
  const float* sinks = nullptr;
  Earlier earlier;
  const TileKernels* pairs = nullptr;  ///< if not null: q, k, v, d_o are bfloat16 and are multiplied by these
  const float* packed = nullptr;       ///< with `pairs`: PackedKeys of the values (forward) or the keys (backward)
};

/// Pointer to element `at` of an operand whose type is float32.
inline const float* floats_at(const Elements& x, std::int64_t at) { return reinterpret_cast<const float*>(x.at) + at; }
inline float* floats_at(const MutableElements& x, std::int64_t at) { return reinterpret_cast<float*>(x.at) + at; }

/// Index in its buffer of the first float of one head of token row `row` (= b * T + t). See HeadRows.
inline std::int64_t row_of(const HeadRows& rows, std::int64_t row, std::int64_t group, std::int64_t head = 0) {
  return row * rows.row_stride + rows.offset + group * rows.group_stride + head * rows.head_stride;
}

/// Queries [first, first + count) of one head of sample b; count <= query_block. `head` = g * (H / G) + head_in_group.
struct QueryBlock {
  std::int64_t b, g, head_in_group, head, first, count;
};

/// The block of `head` that begins at query `first`: `size` queries, fewer at the end of the sample.
inline QueryBlock query_block_of(const AttentionExtents& e, std::int64_t b, std::int64_t head, std::int64_t first,
                                 std::int64_t size) {
  const auto heads = e.H / e.G;
  return {.b = b,
          .g = head / heads,
          .head_in_group = head % heads,
          .head = head,
          .first = first,
          .count = first + size < e.T ? size : e.T - first};
}

/// The sink of a head; -infinity, which changes no sum, if the call has none.
inline float sink_of(const AttentionCall& call, std::int64_t head) {
  return call.sinks == nullptr ? -std::numeric_limits<float>::infinity() : call.sinks[head];
}

/// The bias of one head, factor * (key(s) - query(t)) for query t and key s of the call. See Alibi.
struct HeadBias {
  const Alibi& alibi;
  float slope, factor;

  /// The bias is multiplied by `unit`.
  HeadBias(const Alibi& of, std::int64_t head, double unit) : alibi(of) {
    const float given = of.slopes[static_cast<std::size_t>(head)];
    slope = of.rounded ? static_cast<float>(bfloat16(given)) : 1;
    factor = static_cast<float>(of.factor * unit * (of.rounded ? 1 : given));
  }
  float query(std::int64_t t) const { return slope * static_cast<float>(alibi.first_query + t); }
  float key(std::int64_t s) const {
    const auto position = static_cast<float>(alibi.first_key + s);
    if (!alibi.rounded) return position;
    return static_cast<float>(bfloat16(slope * static_cast<float>(bfloat16(position))));
  }
};

/// Gradients of the keys and values of one group: fp32, each [S, padded_channels(D)], dense. The rows are padded to
/// whole vectors so that they can be updated without a tail loop.
struct KeyGradients {
  float *dk, *dv;
};

}  // namespace tessera::kernels
