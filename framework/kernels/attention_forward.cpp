// The forward pass of attention for one block of queries, with the online softmax of FlashAttention (arXiv:2205.14135):
// keys come in blocks, and when a block raises the maximum of a query, its sum and output so far are scaled down.
// attention_tile-inl.h describes the layout of scores.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/attention_forward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <cmath>

#include "framework/kernels/attention_call.h"
#include "framework/kernels/attention_pairs-inl.h"
#include "framework/kernels/attention_pairs.h"
#include "framework/kernels/attention_tile-inl.h"
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace attention {

constexpr float ln_of_2 = 0.693147180559945F;
constexpr float nothing = -1e30F;  // start of a maximum: below any score, finite so that no inf - inf occurs

/// Running maximum and sum per query. Scores are multiplied by log2(e) beforehand, so that 2^x replaces e^x.
struct Softmax {
  alignas(64) float most[width], sum[width], shrink[width];

  HWY_INLINE Softmax() {
    std::fill_n(most, width, nothing);
    std::fill_n(sum, width, 0.0F);
  }
  /// The state of all queries after a score without key and value; -infinity: none.
  HWY_INLINE void Sink(float score) {
    if (score == -std::numeric_limits<float>::infinity()) return;
    std::fill_n(most, width, score * log2_of_e);
    std::fill_n(sum, width, 1.0F);
  }
  /// The state of `count` queries after earlier calls. Their output is already divided by the sum, so the sum is 1.
  HWY_INLINE void Resume(const float* lse, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      if (lse[i] == -std::numeric_limits<float>::infinity()) continue;
      most[i] = lse[i] * log2_of_e;
      sum[i] = 1;
    }
  }
};

/// Sets the scores of invisible keys in vector v to -infinity, and returns the maximum of `most` and all scores.
HWY_INLINE V MostOf(const Sight& sight, const KeyBlock& block, std::size_t v, float* scores, V most) {
  const D d;
  const V hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (std::size_t s = 0; s < block.Strips(); ++s) {
    if (!block.Holds(s, v)) continue;
    const auto key = block.first + static_cast<std::int64_t>(s * strip);
    float* at = scores + s * strip * width + v * lanes;
    const auto keys = block.KeysOf(s);
    if (sight.All(v, key, static_cast<std::int64_t>(keys))) {
      for (std::size_t i = 0; i < keys; ++i) most = hn::Max(most, hn::Load(d, at + i * width));
      continue;
    }
    for (std::size_t i = 0; i < keys; ++i) {
      const V score =
          hn::IfThenElse(Blind(sight, v, key + static_cast<std::int64_t>(i)), hidden, hn::Load(d, at + i * width));
      hn::Store(score, d, at + i * width);
      most = hn::Max(most, score);
    }
  }
  return most;
}

/// Replaces the scores by 2^(score - most) and returns their sum. Two sums, of even and odd keys, hide the latency of
/// the addition.
HWY_INLINE V PowersOf(const KeyBlock& block, std::size_t v, float* scores, V most) {
  const D d;
  V even = hn::Zero(d), odd = even;
  for (std::size_t s = 0; s < block.Strips(); ++s) {
    if (!block.Holds(s, v)) continue;
    float* at = scores + s * strip * width + v * lanes;
    const auto keys = block.KeysOf(s);
    std::size_t i = 0;
    for (; i + 2 <= keys; i += 2, at += 2 * width) {
      const V a = math::Exp2OfNegative(d, hn::Sub(hn::Load(d, at), most));
      const V b = math::Exp2OfNegative(d, hn::Sub(hn::Load(d, at + width), most));
      hn::Store(a, d, at);
      hn::Store(b, d, at + width);
      even = hn::Add(even, a);
      odd = hn::Add(odd, b);
    }
    if (i < keys) {
      const V a = math::Exp2OfNegative(d, hn::Sub(hn::Load(d, at), most));
      hn::Store(a, d, at);
      even = hn::Add(even, a);
    }
  }
  return hn::Add(even, odd);
}

/// Adds a block of scores to the running softmax. `out` is scaled only if a maximum has risen, which is rare after the
/// first blocks.
HWY_INLINE void TakeIn(const Sight& sight, const KeyBlock& block, float* scores, Softmax& softmax, std::size_t size,
                       float* out) {
  const D d;
  for (std::size_t v = 0; v < vectors; ++v) {
    const V before = hn::Load(d, softmax.most + v * lanes);
    const V most = MostOf(sight, block, v, scores, before);
    const V sum = PowersOf(block, v, scores, most);
    const V shrink = math::Exp2OfNegative(d, hn::Sub(before, most));
    hn::Store(most, d, softmax.most + v * lanes);
    hn::Store(hn::MulAdd(hn::Load(d, softmax.sum + v * lanes), shrink, sum), d, softmax.sum + v * lanes);
    if (hn::AllTrue(d, hn::Eq(shrink, hn::Set(d, 1.0F)))) continue;
    for (std::size_t i = 0; i < size; ++i) {
      float* at = out + i * width + v * lanes;
      hn::Store(hn::Mul(hn::Load(d, at), shrink), d, at);
    }
  }
}

/// Divides the outputs by the sums and writes o and lse. A query that saw neither key nor sink has sum 0: output 0, lse
/// -infinity.
/// `rows` holds [width, size] floats and is used only for outputs that are not float32.
HWY_INLINE void Finish(const AttentionCall& call, const QueryBlock& at, const Softmax& softmax, std::size_t size,
                       float* out, float* rows) {
  const D d;
  alignas(64) float lse[width];
  const V zero = hn::Zero(d);
  for (std::size_t v = 0; v < vectors; ++v) {
    const V sum = hn::Load(d, softmax.sum + v * lanes), one = hn::Set(d, 1.0F);
    const auto empty = hn::Eq(sum, zero);
    const V inverse = hn::IfThenZeroElse(empty, hn::Div(one, sum));
    const V most = hn::Mul(hn::Load(d, softmax.most + v * lanes), hn::Set(d, ln_of_2));
    const V total = hn::Add(most, math::Log(d, sum));
    hn::Store(hn::IfThenElse(empty, hn::Set(d, -std::numeric_limits<float>::infinity()), total), d, lse + v * lanes);
    for (std::size_t i = 0; i < size; ++i) {
      float* column = out + i * width + v * lanes;
      hn::Store(hn::Mul(hn::Load(d, column), inverse), d, column);
    }
  }
  const auto& e = call.e;
  ToRowsOf(out, static_cast<std::size_t>(at.count), size, 1.0F, call.out,
           row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group), e.o.row_stride, rows);
  std::copy_n(lse, at.count, call.lse_out + (at.b * e.H + at.head) * e.T + at.first);
}

/// Initializes the softmax and the outputs [size, width]: empty, or with Earlier::join the results of earlier calls.
/// Returns false if there is nothing to compute, because the call joins and no key of it is visible.
HWY_INLINE bool Begin(const AttentionCall& call, const QueryBlock& at, const Sight& sight, std::size_t size,
                      Softmax& softmax, float* out) {
  if (call.earlier == Earlier::overwrite) {
    std::fill_n(out, size * width, 0.0F);
    softmax.Sink(sink_of(call, at.head));
    return true;
  }
  if (sight.begin >= sight.end) return false;
  const auto& e = call.e;
  const auto count = static_cast<std::size_t>(at.count);
  softmax.Resume(call.lse_out + (at.b * e.H + at.head) * e.T + at.first, count);
  ToColumns(floats_at(call.out, row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group)),
            static_cast<std::size_t>(e.o.row_stride), count, size, 1.0F, out);
  return true;
}

void ForwardBlock(const AttentionCall& call, const QueryBlock& at) {
  const auto& e = call.e;
  const auto size = static_cast<std::size_t>(e.D);
  const bool drops = call.mask.rate != 0;
  const Scratch memory(2 * size * width + 2 * key_block * width + key_block * size);
  float* columns = memory.data();
  float *out = columns + size * width, *scores = out + size * width, *keep = scores + key_block * width;
  float* rows = keep + key_block * width;
  Sight sight;
  See(call.visible, e, at, sight);
  const FloatRows q = RowsOf(call.q, row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group), e.q.row_stride,
                             static_cast<std::size_t>(at.count), size, rows);
  ToColumns(q.at, q.row, static_cast<std::size_t>(at.count), size, static_cast<float>(e.scale * log2_of_e), columns);
  Softmax softmax;
  if (!Begin(call, at, sight, size, softmax, out)) return;
  for (auto key = sight.begin; key < sight.end; key += key_block) {
    const KeyBlock block = Cut(sight, key);
    const FloatRows k =
        RowsOf(call.k, row_of(call.k_rows, at.b * e.S + key, at.g), call.k_rows.row_stride, block.keys, size, rows);
    KeysTimesColumns(block, k.at, k.row, size, columns, scores);
    ToScores(call, at, block, scores, nullptr);
    TakeIn(sight, block, scores, softmax, size, out);
    if (drops) {
      Keep(call, at).Fill(block, keep);
      MultiplyBlock(block, keep, scores);
    }
    const FloatRows v =
        RowsOf(call.v, row_of(call.v_rows, at.b * e.S + key, at.g), call.v_rows.row_stride, block.keys, size, rows);
    AddWeightedKeys(block, v.at, v.row, size, scores, out);
  }
  Finish(call, at, softmax, size, out, rows);
}

/// The forward pass of a block with products of bfloat16 pairs. The scores, not the queries, are multiplied by the
/// scale, so that only the probabilities are rounded. Blocks of keys are those of PackedKeys.
void ForwardPairs(const AttentionCall& call, const QueryBlock& at) {
  const auto& e = call.e;
  const TileKernels& t = *call.pairs;
  const auto size = static_cast<std::size_t>(e.D);
  const PanelShape queries(t, at.count, e.D / 2), probabilities(t, at.count, packed_keys / 2);
  const PackedKeys values(t, e);
  const bool drops = call.mask.rate != 0;
  const Scratch panels(static_cast<std::size_t>(queries.floats() + probabilities.floats()));
  const Scratch memory(2 * size * width + 2 * key_block * width);
  float *q_panels = panels.data(), *p_panels = q_panels + queries.floats();
  float *out = memory.data(), *rows = out + size * width;
  float *scores = rows + size * width, *keep = scores + key_block * width;
  Sight sight;
  See(call.visible, e, at, sight);
  const auto q = call.q.part(static_cast<std::size_t>(row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group)), 0);
  t.bfloat16.along(q.at, e.q.row_stride, queries.depth, at.count, queries.panel(), q_panels);
  Softmax softmax;
  if (!Begin(call, at, sight, size, softmax, out)) return;
  for (auto key = sight.begin / packed_keys * packed_keys; key < sight.end; key += packed_keys) {
    const KeyBlock block = Cut(sight, key);
    const auto keys = static_cast<std::int64_t>(block.keys);
    multiply_pairs(t, keys, queries.depth, pair_rows(t, call.k, row_of(e.k, at.b * e.S + key, at.g), e.k.row_stride),
                   queries, q_panels, scores, width, false);
    Scale(block, static_cast<float>(e.scale * log2_of_e), scores);
    ToScores(call, at, block, scores, nullptr);
    TakeIn(sight, block, scores, softmax, size, out);
    if (drops) {
      Keep(call, at).Fill(block, keep);
      MultiplyBlock(block, keep, scores);
    }
    ToPairsOfKeys(block, scores, 1.0F, probabilities, p_panels);
    multiply_pairs(t, e.D, (keys + 1) / 2, values.rows(call.packed, at.b, at.g, key), probabilities, p_panels, out,
                   width, true);
  }
  Finish(call, at, softmax, size, out, rows);
}

}  // namespace attention

void AttentionForwardBlock(const AttentionCall& call, const QueryBlock& at) {
  call.pairs != nullptr ? attention::ForwardPairs(call, at) : attention::ForwardBlock(call, at);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(AttentionForwardBlock);

void attention_forward_block(const AttentionCall& call, const QueryBlock& at) {
  HWY_DYNAMIC_DISPATCH(AttentionForwardBlock)(call, at);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
