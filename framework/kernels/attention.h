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
///   D  head dimension: channels of a head

/// Where the heads of one operand lie in memory. Heads usually lie inside the wider rows of a fused QKV projection, so
/// an operand is a base plus these strides, all counted in elements. Head h belongs to group g = h / (H / G); the
/// row of token t of sample b for that head begins at
///
///   (b * T + t) * row_stride + offset + g * group_stride + (h % (H / G)) * head_stride      (S instead of T for k, v)
///
/// and holds D consecutive elements.
struct HeadRows {
  std::int64_t row_stride;       ///< distance between the rows of consecutive tokens
  std::int64_t offset;           ///< position of group 0, head 0 inside a row
  std::int64_t group_stride;     ///< distance between consecutive groups inside a row
  std::int64_t head_stride = 0;  ///< distance between consecutive query heads of a group; not used for k and v
};

/// A bias of the scores that grows with the distance between query and key (ALiBi, arXiv:2108.12409): after the soft
/// cap, head h adds factor * slopes[h] * (position of the key - position of the query). Token i of a sample has the
/// position `first_query` + i or `first_key` + i. No gradient depends on it, and no array of biases is stored.
struct Alibi {
  std::span<const float> slopes = {};           ///< [H]; empty: no bias. Must outlive every copy of this struct
  std::int64_t first_query = 0, first_key = 0;  ///< not 0: the call has a block of a sample's tokens, or new tokens
  double factor = 1;
  /// The slope, the position of the key, and their product are rounded to bfloat16, as in Falcon. The bias is then no
  /// function of the distance alone: a key's position counts from the start of the sample.
  bool rounded = false;
};

/// Shapes, memory layout and scaling of one attention call.
struct AttentionExtents {
  std::int64_t B, T, S, H, G, D;
  double scale;  ///< multiplies q k^T; usually 1 / sqrt(D)
  HeadRows q, k, v, o;
  double softcap = 0;  ///< if not 0, a score s becomes softcap * tanh(s / softcap) (Gemma 2, arXiv:2408.00118)
  /// Number of tokens by which the elements of the dropout mask are numbered, if they are more than this call has: a
  /// block of the queries and keys of a sample (context parallelism), or a sample shorter than others. 0: T and S.
  std::int64_t whole_tokens = 0;
  Alibi alibi = {};

  /// Extents of the dropout mask of one sample, [H, mask_rows, mask_columns].
  std::int64_t mask_rows() const { return whole_tokens > 0 ? whole_tokens : T; }
  std::int64_t mask_columns() const { return whole_tokens > 0 ? whole_tokens : S; }
};

/// Whether a call overwrites its outputs or combines its results with the earlier contents of the outputs.
enum class Earlier {
  overwrite,
  /// Forward pass: o and lse hold the result of the same queries over other keys. Backward pass: dq, dk and dv hold
  /// contributions of other keys or queries. The call adds its own part, so that calls over all blocks of keys give the
  /// result of one call over all keys, except for rounding.
  join
};

/// The attention mask. Query t of sample b sees the keys first[b * T + t] .. last[b * T + t], both ends included. One
/// interval per query expresses causal attention, sliding windows, packed documents and fewer queries than keys
/// (decoding). For a query that sees no key (last < first) the output is 0 and lse is -infinity.
///
/// The kernels are fastest when `first` and `last` do not decrease along t within a sample, because then whole blocks
/// of keys are skipped; they are correct for any intervals.
///
/// `among` adds an arbitrary mask: of the keys in its interval, a query sees only those whose byte is not 0. The mask
/// is slow and takes B * T * S bytes, so it is meant for small cases.
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
  /// [H], or empty. A sink is a score without key and value: it enlarges the sum of exponentials of its head, lse
  /// included, and nothing else. For Earlier::overwrite; with Earlier::join, let lse begin with the sinks and o with 0.
  std::span<const float> sinks = {};
};

/// o = dropout(softmax(scale * q k^T over the visible keys)) v, and lse, which the backward pass needs.
///
/// `mask` selects the probabilities that are dropped: the probability of (head, t, s) is element
/// (head * mask_rows + t) * mask_columns + s of its sample. Rate 0: no dropout.
///
/// With Earlier::join, o and lse hold the result of the same queries over other keys. Let o' and lse' be the result
/// over the keys of this call: then lse becomes l = log(e^lse + e^lse'), and o becomes e^(lse - l) o + e^(lse' - l) o'.
///
/// Operands are float32, bfloat16 or float16; with Earlier::join the results are float32. Scores, softmax and sums are
/// fp32, and results are rounded once. If q, k, v and d_o are bfloat16, chosen_isa() has products of bfloat16 pairs
/// (avx512_bf16, amx), and D and all strides and offsets are even, then the probabilities, and in the backward pass the
/// gradients of the scores, are rounded to bfloat16 too, because they are factors of such products. Denormals are
/// flushed to zero. The blocking depends on the extents only, so the result does not depend on the number of threads.
///
/// Throws ShapeError if an operand is too small, `visible`, `lse` or `mask` has another size, or an interval leaves
/// [0, S). Throws BugError if G does not divide H, the dropout rate is outside [0, 1), or results to join are not
/// float32. Source: Dao et al., arXiv:2205.14135.
void attention_forward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible, const DropoutMask& mask,
                       const AttentionForward& of, Earlier earlier = Earlier::overwrite);

/// Operands of attention_backward. dq, dk and dv may point into one buffer of the fused layout: only the D elements of
/// each head are written.
struct AttentionBackward {
  Elements q, k, v;            ///< as given to the forward pass
  Elements o;                  ///< final result of the forward pass: after its last call, if there were several
  std::span<const float> lse;  ///< [B, H, T], final result of the forward pass
  Elements d_o;                ///< gradient of o, laid out as e.o says
  MutableElements dq, dk, dv;  ///< results, laid out as q, k and v
};

/// Gradients of attention_forward with the same extents, `visible` and `mask`; written to dq, dk and dv, or added to
/// them with Earlier::join. Scores and probabilities are recomputed block by block. dk and dv are summed in fp32 over
/// query blocks, in an order that depends on the extents only. Types and errors are those of attention_forward.
void attention_backward(Threads& threads, const AttentionExtents& e, const VisibleKeys& visible,
                        const DropoutMask& mask, const AttentionBackward& of, Earlier earlier = Earlier::overwrite);

/// Adds the gradient of the sinks of attention_forward to `dsinks`: of head h, the sum over samples and queries of
/// -e^(sinks[h] - lse) times the product of the query's rows of o and d_o. attention_backward needs no sinks.
///
///   sinks, dsinks   [H]
///   lse             [B, H, T], final result of the forward pass
///   o, d_o          B * T token rows, laid out as e.o says; float32, bfloat16 or float16
///
/// Sums are fp32 within a row and double over the rows, in an order that depends on the extents only. Throws ShapeError
/// if an operand has another size.
void attention_sinks_backward(Threads& threads, const AttentionExtents& e, std::span<const float> sinks,
                              const Elements& o, const Elements& d_o, std::span<const float> lse,
                              std::span<float> dsinks);

}  // namespace tessera::kernels
