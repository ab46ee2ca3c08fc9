#pragma once

#include <cstdint>
#include <span>

#include "framework/kernels/dropout.h"
#include "framework/kernels/elements.h"
#include "framework/kernels/threads.h"

namespace tessera::kernels {

/// Scaled dot-product attention in blocks (FlashAttention): the [T, S] matrix of scores is never stored.
///
/// Extents, used by all declarations of this file:
///   B  samples (batch)      T  query tokens of a sample     S  key tokens of a sample
///   H  query heads          G  key/value groups, H % G == 0 (grouped-query attention; G == H: multi-head)
///   D  channels of a head

/// Where the heads of one operand lie in memory. Heads usually lie inside the wider rows of a fused QKV projection, so
/// an operand is a base plus these strides, all counted in elements. Head h belongs to group g = h / (H / G); the
/// row of token t of sample b for that head begins at
///
///   (b * T + t) * row_stride + offset + g * group_stride + (h % (H / G)) * head_stride      (S instead of T for k, v)
///
/// and holds D consecutive elements.
struct HeadRows {
  std::int64_t row_stride;       ///< from one token to the next
  std::int64_t offset;           ///< of group 0, head 0 inside a row
  std::int64_t group_stride;     ///< from one group to the next inside a row
  std::int64_t head_stride = 0;  ///< from one query head to the next inside a group; not used for k and v
};

/// Shapes, memory layout and scaling of one attention call.
struct AttentionExtents {
  std::int64_t B, T, S, H, G, D;
  double scale;  ///< multiplies q k^T; usually 1 / sqrt(D)
  HeadRows q, k, v, o;
  double softcap = 0;  ///< if not 0, a score s becomes softcap * tanh(s / softcap) (Gemma 2, arXiv:2408.00118)
  /// Tokens of the sample that this call is a block of, which number the elements of its dropout; 0: T == S of them.
  std::int64_t whole_tokens = 0;

  /// Extents of a sample's mask of dropout, [H, mask_rows, mask_columns].
  std::int64_t mask_rows() const { return whole_tokens > 0 ? whole_tokens : T; }
  std::int64_t mask_columns() const { return whole_tokens > 0 ? whole_tokens : S; }
};

/// What a call does with results that are there already.
enum class Earlier {
  overwrite,
  /// They are those of other keys (forward pass), or of other keys or queries (backward pass): the call joins its own
  /// to them. So a sum over blocks of keys gives the same, except for rounding, as one call with all keys.
  join
};

/// The attention mask. Query t of sample b sees the keys first[b * T + t] .. last[b * T + t], both ends included. One
/// interval per query expresses causal attention, sliding windows, packed documents and fewer queries than keys
/// (decoding). For a query that sees no key (last < first) the output is 0 and lse is -infinity.
///
/// The kernels are fastest when `first` and `last` do not decrease along t within a sample, because then whole blocks
/// of keys are skipped; they are correct for any intervals.
///
/// `among` adds an arbitrary mask: inside its interval a query sees only the keys whose byte is not 0. It is slow and
/// takes B * T * S bytes, so it is meant for small cases.
///
/// The caller owns the memory of all three spans.
struct VisibleKeys {
  std::span<const std::int32_t> first, last;  ///< [B, T] each; 0 <= first <= last < S where not empty
  std::span<const std::uint8_t> among = {};   ///< [B, T, S], or empty: every key of the interval is visible
};

/// Operands of attention_forward. q, k and v may point into one fused buffer. The caller owns all memory.
struct AttentionForward {
  Elements q;            ///< B * T token rows, laid out as e.q says
  Elements k, v;         ///< B * S token rows, laid out as e.k and e.v say
  MutableElements o;     ///< written: B * T token rows, laid out as e.o says
  std::span<float> lse;  ///< written: [B, H, T], log of the sum of exponentials of the scaled (and soft-capped) scores
};

/// o = dropout(softmax(scale * q k^T over the visible keys)) v, and lse, which the backward pass needs.
///
/// `mask` is the dropout of the probabilities: the element of a sample is (head * mask_rows + t) * mask_columns + s;
/// rate 0: no dropout.
///
/// With Earlier::join, o and lse hold the result of the same queries over other keys, and become that over both: with
/// l = log(e^lse + e^lse'), o becomes e^(lse - l) o + e^(lse' - l) o'.
///
/// Operands are float32, bfloat16 or float16; with Earlier::join the results are float32. Scores, softmax and sums are
/// fp32, and results are rounded once. Where q, k, v and d_o are bfloat16 and chosen_isa() multiplies pairs of them
/// (avx512_bf16, amx; D even, strides and offsets even), the probabilities, and in the backward pass the gradients of
/// the scores, are rounded to bfloat16 too, as factors of such products. Denormals are flushed to zero. The blocking
/// depends on the extents only, so the result does not depend on the number of threads. Throws ShapeError if an operand
/// is too small, `visible` or `mask` has another size, or an interval leaves [0, S). Source: Dao et al.,
/// arXiv:2205.14135.
void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       const AttentionForward& of, Earlier earlier = Earlier::overwrite);

/// Operands of attention_backward. dq, dk and dv may point into one buffer of the fused layout: only the D elements of
/// each head are written.
struct AttentionBackward {
  Elements q, k, v;            ///< as given to the forward pass
  Elements o;                  ///< as the forward pass wrote it; if it had several calls, as the last one did
  std::span<const float> lse;  ///< the same
  Elements d_o;                ///< gradient of o, laid out as e.o says
  MutableElements dq, dk, dv;  ///< written: laid out as q, k and v
};

/// Gradients of attention_forward with the same extents, `visible` and `mask`. They are written; with Earlier::join
/// they are added. Scores and probabilities are recomputed block by block. dk and dv are summed in fp32 over query
/// blocks, in an order that depends on the extents only. Types and errors as of attention_forward.
void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, const AttentionBackward& of, Earlier earlier = Earlier::overwrite);

}  // namespace tessera::kernels
