#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/dropout.h"
#include "framework/kernels/threads.h"

namespace tessera {

/// Blocked attention that never stores scores. Heads lie inside wider rows (a fused QKV projection), so each operand is
/// a base span with a row stride and per-head offsets computed as offset + group * group_stride + head_in_group *
/// head_stride.
///
/// B batch, T queries, S keys, H query heads, G key/value groups (H % G == 0), D channels of a head.
struct HeadRows {
  std::int64_t row_stride;       ///< floats from one token to the next; a sample has T (or S) rows
  std::int64_t offset;           ///< of group 0, head 0 in the row
  std::int64_t group_stride;     ///< to the next group
  std::int64_t head_stride = 0;  ///< to the next query head of one group; unused for keys and values
};

struct AttentionExtents {
  std::int64_t B, T, S, H, G, D;
  double scale;  ///< multiplies q k^T, usually 1 / sqrt(D)
  HeadRows q, k, v, o;
  double softcap = 0;  ///< not 0: scores s become softcap * tanh(s / softcap), arXiv:2408.00118
};

/// What each query sees: the keys first_key[b*T + t] .. last_key[b*T + t], both included. That says causal, sliding
/// windows, documents and fewer queries than keys. An empty interval (last < first) gives zeros and lse = -infinity.
/// Both never decrease along t within one sample except that kernels must still be right when they do. A mask that
/// intervals do not say stands in `among`: of its interval a query sees the keys whose byte is not 0. Slow; for small
/// cases.
struct VisibleKeys {
  std::span<const std::int32_t> first, last;  ///< [B, T] each
  std::span<const std::uint8_t> among = {};   ///< [B, T, S]; empty: the whole interval
};

/// o = softmax(scale q k^T over what is visible) v.
///
///   q, o   [B, T] rows; k, v [B, S] rows, as the HeadRows say; q, k and v may point into one buffer
///   lse    [B, H, T]   log of the sum of exponentials of the scaled (and capped) scores: for the backward pass and for
///   merging chunks mask   dropout of the probabilities; element of a sample: ((head * T) + t) * S + s; rate 0: none
///
/// fp32 with fp32 accumulation, flush to zero. Tiles depend on the extents only. Source: Dao et al., arXiv:2205.14135.
void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       std::span<const float> q, std::span<const float> k, std::span<const float> v, std::span<float> o,
                       std::span<float> lse);

/// The gradients; each is written (not added), in the layout of its operand. dq, dk, dv may point into one buffer of
/// the fused layout. `o` and `lse` as the forward pass left them.
void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, std::span<const float> q, std::span<const float> k,
                        std::span<const float> v, std::span<const float> o, std::span<const float> lse,
                        std::span<const float> d_o, std::span<float> dq, std::span<float> dk, std::span<float> dv);

}  // namespace tessera
