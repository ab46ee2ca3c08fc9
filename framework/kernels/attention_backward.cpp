// The backward pass of attention for one block of queries; attention_tile-inl.h describes the layout of scores.
//
//   p  = 2^(s - lse)            s and lse are multiplied by log2(e) beforehand, so that 2^x replaces e^x
//   dv += p^T do
//   dp = do v^T
//   ds = p (dp - delta)         delta = sum over channels of o do; multiplied by the derivative of the soft cap
//   dk += ds^T q
//   dq += ds k
//
// With dropout, p in dv is p * keep / (1 - rate), and dp is multiplied by the same factor. Source: Dao et al.,
// arXiv:2205.14135, algorithm 4.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/attention_backward.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

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

/// The operands of a block of queries in the layouts that the products need. q and do are kept twice: by columns as the
/// right operand of products with rows of keys, by rows as the right operand of products that add to rows of keys.
struct Operands {
  std::size_t size, padded;      // channels; rounded up to whole vectors
  float *q_columns, *d_columns;  // [size, width]: scale log2(e) q; do
  float *q_rows, *d_rows;        // [width, padded]: scale q; do
  float *dq, *p, *ds, *keep;     // [size, width]; [key_block, width] each
  float* slope;                  // [key_block, width], of capped scores
  float *rows, *sums;            // [key_block, size], [2, width, size]: rows of operands as floats
  alignas(64) float lse[width], delta[width];
};

/// Sum over i of x[i] y[i].
HWY_INLINE float Dot(const float* x, const float* y, std::size_t size) {
  return static_cast<float>(
      range::Sum(size, [&](std::size_t i, auto load) HWY_ATTR { return hn::Mul(load(x + i), load(y + i)); }));
}

/// to[lane][i] = x[lane][i] * factor, rows padded with zeros to o.padded; rows from `count` on are zero.
HWY_INLINE void ToDense(const float* x, std::size_t row, std::size_t count, const Operands& o, float factor,
                        float* to) {
  const V by = hn::Set(D(), factor);
  for (std::size_t lane = 0; lane < width; ++lane) {
    float* at = to + lane * o.padded;
    if (lane >= count) {
      std::fill_n(at, o.padded, 0.0F);
      continue;
    }
    range::Map(x + lane * row, at, o.size, [&](V v) HWY_ATTR { return hn::Mul(v, by); });
    std::fill(at + o.size, at + o.padded, 0.0F);
  }
}

HWY_INLINE std::size_t Padded(std::size_t size) { return (size + lanes - 1) / lanes * lanes; }
/// Floats of all operands.
HWY_INLINE std::size_t OperandFloats(std::size_t size) {
  return 3 * size * width + 2 * width * Padded(size) + 4 * key_block * width + (key_block + 2 * width) * size;
}

/// Divides the memory at `at` among the operands.
HWY_INLINE void Carve(std::size_t size, float* at, Operands& o) {
  o.size = size;
  o.padded = Padded(size);
  const auto take = [&](std::size_t floats) {
    float* mine = at;
    at += floats;
    return mine;
  };
  o.q_columns = take(size * width);
  o.d_columns = take(size * width);
  o.dq = take(size * width);
  o.q_rows = take(width * o.padded);
  o.d_rows = take(width * o.padded);
  o.p = take(key_block * width);
  o.ds = take(key_block * width);
  o.keep = take(key_block * width);
  o.slope = take(key_block * width);
  o.rows = take(key_block * size);
  o.sums = take(2 * width * size);
}

/// Loads lse (multiplied by log2(e)) and computes delta for the queries of a block. `memory` holds [2, width, size]
/// floats and is used only for operands that are not float32.
HWY_INLINE void LoadSums(const AttentionCall& call, const QueryBlock& at, std::size_t size, float* memory, float* lse,
                         float* delta) {
  const auto& e = call.e;
  const auto count = static_cast<std::size_t>(at.count);
  const auto first = row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group);
  const FloatRows o = RowsOf(call.o, first, e.o.row_stride, count, size, memory);
  const FloatRows d = RowsOf(call.d_o, first, e.o.row_stride, count, size, memory + width * size);
  const float* from = call.lse + (at.b * e.H + at.head) * e.T + at.first;
  for (std::size_t i = 0; i < width; ++i) {
    lse[i] = i < count ? from[i] * log2_of_e : 0.0F;
    delta[i] = i < count ? Dot(o.at + i * o.row, d.at + i * d.row, size) : 0.0F;
  }
}

/// Fills the operands of one block. The scale goes into q, so that scores and dk need no further multiplication.
HWY_INLINE void Pack(const AttentionCall& call, const QueryBlock& at, Operands& o) {
  const auto& e = call.e;
  const auto count = static_cast<std::size_t>(at.count);
  const auto q_at = row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group);
  const auto o_at = row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group);
  const FloatRows q = RowsOf(call.q, q_at, e.q.row_stride, count, o.size, o.rows);
  ToColumns(q.at, q.row, count, o.size, static_cast<float>(e.scale * log2_of_e), o.q_columns);
  ToDense(q.at, q.row, count, o, static_cast<float>(e.scale), o.q_rows);
  LoadSums(call, at, o.size, o.sums, o.lse, o.delta);
  const FloatRows d = RowsOf(call.d_o, o_at, e.o.row_stride, count, o.size, o.rows);
  ToColumns(d.at, d.row, count, o.size, 1.0F, o.d_columns);
  ToDense(d.at, d.row, count, o, 1.0F, o.d_rows);
  std::fill_n(o.dq, o.size * width, 0.0F);
}

/// Probability and gradient of the score.
struct Pair {
  V p, ds;
};

/// p and ds of one vector of scores and dp. With dropout, `keep` is 1 / (1 - rate) or 0.
template <bool drops>
HWY_INLINE Pair Soften(V score, V dp, V lse, V delta, V keep) {
  const V p = math::Exp2OfNegative(D(), hn::Sub(score, lse));
  if (drops) return {hn::Mul(p, keep), hn::Mul(p, hn::MulSub(dp, keep, delta))};
  return {p, hn::Mul(p, hn::Sub(dp, delta))};
}

/// Replaces `scores` by p and `dp` by ds. Both are exactly 0 where a key is not visible.
template <bool drops>
HWY_INLINE void SoftenBlock(const Sight& sight, const KeyBlock& block, const float* all_lse, const float* all_delta,
                            const float* keep, float* scores, float* dp) {
  const D d;
  for (std::size_t v = 0; v < vectors; ++v) {
    const V lse = hn::Load(d, all_lse + v * lanes), delta = hn::Load(d, all_delta + v * lanes);
    for (std::size_t s = 0; s < block.Strips(); ++s) {
      if (!block.Holds(s, v)) continue;
      const auto keys = block.KeysOf(s);
      const auto key = block.first + static_cast<std::int64_t>(s * strip);
      const bool all = sight.All(v, key, static_cast<std::int64_t>(keys));
      for (std::size_t i = 0; i < keys; ++i) {
        const auto at = (s * strip + i) * width + v * lanes;
        const V kept = drops ? hn::Load(d, keep + at) : hn::Zero(d);
        auto now = Soften<drops>(hn::Load(d, scores + at), hn::Load(d, dp + at), lse, delta, kept);
        if (!all) {
          const auto blind = Blind(sight, v, key + static_cast<std::int64_t>(i));
          now = {hn::IfThenZeroElse(blind, now.p), hn::IfThenZeroElse(blind, now.ds)};
        }
        hn::Store(now.p, d, scores + at);
        hn::Store(now.ds, d, dp + at);
      }
    }
  }
}

/// SoftenBlock with the dropout of the call and the derivative of its soft cap. `keep` is scratch memory for a tile.
HWY_INLINE void SoftenAll(const AttentionCall& call, const QueryBlock& at, const Sight& sight, const KeyBlock& block,
                          const float* lse, const float* delta, const float* slope, float* keep, float* scores,
                          float* dp) {
  if (call.mask.rate != 0) {
    Keep(call, at).Fill(block, keep);
    SoftenBlock<true>(sight, block, lse, delta, keep, scores, dp);
  } else {
    SoftenBlock<false>(sight, block, lse, delta, keep, scores, dp);
  }
  if (call.e.softcap != 0) MultiplyBlock(block, slope, dp);
}

/// to[key][i] += sum over the queries of weights[key][query] rows[query][i]: dv and dk of a block of keys.
HWY_INLINE void AddToKeys(const KeyBlock& block, const Operands& o, const float* weights, const float* rows,
                          float* to) {
  EachRun(block, [&](std::size_t key, std::size_t count, std::size_t v, std::size_t n) HWY_ATTR {
    Multiply<true>({count, o.padded / lanes, n * lanes, weights + key * width + v * lanes, width,
                    rows + v * lanes * o.padded, o.padded, to + key * o.padded, o.padded, true});
  });
}

/// Writes the gradient of the queries, `columns` [size, width] multiplied by `factor`, to dq; adds it with
/// Earlier::join. `memory` holds [width, size] floats.
HWY_INLINE void WriteQueries(const AttentionCall& call, const QueryBlock& at, const float* columns, std::size_t size,
                             float factor, float* memory) {
  const auto& e = call.e;
  const auto count = static_cast<std::size_t>(at.count), row = static_cast<std::size_t>(e.q.row_stride);
  const auto first = row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group);
  if (call.earlier == Earlier::overwrite)
    return ToRowsOf(columns, count, size, factor, call.dq, first, e.q.row_stride, memory);
  ToRows(columns, count, size, factor, memory, size);
  float* dq = floats_at(call.dq, first);
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t d = 0; d < size; ++d) dq[i * row + d] += memory[i * size + d];
}

void BackwardBlock(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  const auto& e = call.e;
  const Scratch memory(OperandFloats(static_cast<std::size_t>(e.D)));
  Operands o;
  Carve(static_cast<std::size_t>(e.D), memory.data(), o);
  Sight sight;
  See(call.visible, e, at, sight);
  Pack(call, at, o);
  for (auto key = sight.begin; key < sight.end; key += key_block) {
    const KeyBlock block = Cut(sight, key);
    const FloatRows v =
        RowsOf(call.v, row_of(call.v_rows, at.b * e.S + key, at.g), call.v_rows.row_stride, block.keys, o.size, o.rows);
    KeysTimesColumns(block, v.at, v.row, o.size, o.d_columns, o.ds);
    const FloatRows k =
        RowsOf(call.k, row_of(call.k_rows, at.b * e.S + key, at.g), call.k_rows.row_stride, block.keys, o.size, o.rows);
    KeysTimesColumns(block, k.at, k.row, o.size, o.q_columns, o.p);
    ToScores(call, at, block, o.p, o.slope);
    SoftenAll(call, at, sight, block, o.lse, o.delta, o.slope, o.keep, o.p, o.ds);
    const auto row = static_cast<std::size_t>(key) * o.padded;
    AddToKeys(block, o, o.p, o.d_rows, to.dv + row);
    AddToKeys(block, o, o.ds, o.q_rows, to.dk + row);
    AddWeightedKeys(block, k.at, k.row, o.size, o.ds, o.dq);
  }
  WriteQueries(call, at, o.dq, o.size, static_cast<float>(e.scale), o.rows);
}

/// The backward pass of a block with products of bfloat16 pairs; see ForwardPairs. p and ds are rounded once; ds after
/// its multiplication by the scale, so that dk and dq need no further multiplication.
void BackwardPairs(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  const auto& e = call.e;
  const TileKernels& t = *call.pairs;
  const auto size = static_cast<std::size_t>(e.D);
  const auto padded = static_cast<std::int64_t>(Padded(size));
  const auto query_words = (static_cast<std::int64_t>(width) / 2 + t.block - 1) / t.block * t.block;
  const PanelShape columns(t, at.count, e.D / 2), rows(t, e.D, query_words), keys_shape(t, at.count, packed_keys / 2);
  const PackedKeys packed(t, e);
  const Scratch panels(static_cast<std::size_t>(2 * columns.floats() + 2 * rows.floats() + keys_shape.floats() +
                                                2 * packed_keys * query_words));
  const Scratch memory(size * width + 4 * key_block * width + 2 * width * size);
  float* next = panels.data();
  const auto take = [&next](std::int64_t floats) {
    float* mine = next;
    next += floats;
    return mine;
  };
  float *q_columns = take(columns.floats()), *d_columns = take(columns.floats());
  float *q_rows = take(rows.floats()), *d_rows = take(rows.floats()), *ds_panels = take(keys_shape.floats());
  float *p_rows = take(packed_keys * query_words), *ds_rows = take(packed_keys * query_words);
  next = memory.data();
  constexpr auto tile_floats = static_cast<std::int64_t>(key_block * width);
  float *dq = take(e.D * static_cast<std::int64_t>(width)), *p = take(tile_floats), *ds = take(tile_floats);
  float *keep = take(tile_floats), *slope = take(tile_floats), *widened = next;
  alignas(64) float lse[width], delta[width];
  Sight sight;
  See(call.visible, e, at, sight);
  const auto q_at = row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group);
  const auto o_at = row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group);
  const auto pack_columns = [&](const Elements& x, std::int64_t first, std::int64_t row, float* panel) {
    t.bfloat16.along(x.part(static_cast<std::size_t>(first), 0).at, row, columns.depth, at.count, columns.panel(),
                     panel);
  };
  pack_columns(call.q, q_at, e.q.row_stride, q_columns);
  pack_columns(call.d_o, o_at, e.o.row_stride, d_columns);
  pack_pairs_of_rows(t, call.q, q_at, e.q.row_stride, at.count, rows, q_rows);
  pack_pairs_of_rows(t, call.d_o, o_at, e.o.row_stride, at.count, rows, d_rows);
  LoadSums(call, at, size, widened, lse, delta);
  std::fill_n(dq, size * width, 0.0F);
  std::fill_n(p_rows, 2 * packed_keys * query_words, 0.0F);  // words beyond the queries: 0 * 0 in the products
  // Lanes without a query, which the products leave as they are: the slope of a soft cap there multiplies a 0.
  if (at.count < static_cast<std::int64_t>(width)) std::fill_n(p, tile_floats, 0.0F);
  const auto row_words = static_cast<std::size_t>(query_words);
  const auto scale = static_cast<float>(e.scale);
  for (auto key = sight.begin / packed_keys * packed_keys; key < sight.end; key += packed_keys) {
    const KeyBlock block = Cut(sight, key);
    const auto keys = static_cast<std::int64_t>(block.keys);
    multiply_pairs(t, keys, columns.depth, pair_rows(t, call.k, row_of(e.k, at.b * e.S + key, at.g), e.k.row_stride),
                   columns, q_columns, p, width, false);
    multiply_pairs(t, keys, columns.depth, pair_rows(t, call.v, row_of(e.v, at.b * e.S + key, at.g), e.v.row_stride),
                   columns, d_columns, ds, width, false);
    Scale(block, scale * log2_of_e, p);
    ToScores(call, at, block, p, slope);
    SoftenAll(call, at, sight, block, lse, delta, slope, keep, p, ds);
    ToPairsOfQueries(block, p, 1.0F, row_words, p_rows);
    ToPairsOfQueries(block, ds, scale, row_words, ds_rows);
    ToPairsOfKeys(block, ds, scale, keys_shape, ds_panels);
    const auto row = key * padded;
    multiply_pairs(t, keys, query_words, pair_rows(t, p_rows, query_words), rows, d_rows, to.dv + row, padded, true);
    multiply_pairs(t, keys, query_words, pair_rows(t, ds_rows, query_words), rows, q_rows, to.dk + row, padded, true);
    multiply_pairs(t, e.D, (keys + 1) / 2, packed.rows(call.packed, at.b, at.g, key), keys_shape, ds_panels, dq, width,
                   true);
  }
  WriteQueries(call, at, dq, size, 1.0F, widened);
}

}  // namespace attention

void AttentionBackwardBlock(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  call.pairs != nullptr ? attention::BackwardPairs(call, at, to) : attention::BackwardBlock(call, at, to);
}

std::int64_t PaddedChannels(std::int64_t channels) {
  constexpr auto whole = static_cast<std::int64_t>(range::lanes);
  return (channels + whole - 1) / whole * whole;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(AttentionBackwardBlock);
HWY_EXPORT(PaddedChannels);

void attention_backward_block(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  HWY_DYNAMIC_DISPATCH(AttentionBackwardBlock)(call, at, to);
}

std::int64_t padded_channels(std::int64_t channels) { return HWY_DYNAMIC_DISPATCH(PaddedChannels)(channels); }

}  // namespace tessera::kernels
#endif  // HWY_ONCE
