// The backward pass of attention for one block of queries; attention_tile-inl.h describes the layout of scores.
//
//   p  = 2^(s - lse)            s and lse times log2(e), so that a power of two serves
//   dv += p^T do
//   dp = do v^T
//   ds = p (dp - delta)         delta = sum over channels of o do; times the derivative of the soft cap
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
#include "framework/kernels/attention_tile-inl.h"
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace attention {

constexpr float log2_of_e = 1.44269504088896F;

/// The operands of a block of queries in the layouts that the products need. q and do are kept twice: by columns as the
/// right operand of products with rows of keys, by rows as the right operand of products that add to rows of keys.
struct Operands {
  std::size_t size, padded;      // channels; rounded up to whole vectors
  float *q_columns, *d_columns;  // [size, width]: scale log2(e) q; do
  float *q_rows, *d_rows;        // [width, padded]: scale q; do
  float *dq, *p, *ds, *keep;     // [size, width]; [key_block, width] each
  float* slope;                  // [key_block, width], of capped scores
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
  return 3 * size * width + 2 * width * Padded(size) + 4 * key_block * width;
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
}

/// Fills the operands of one block. The scale goes into q, so that scores and dk need no further multiplication.
HWY_INLINE void Pack(const AttentionCall& call, const QueryBlock& at, Operands& o) {
  const auto& e = call.e;
  const auto count = static_cast<std::size_t>(at.count), q_row = static_cast<std::size_t>(e.q.row_stride);
  const auto o_row = static_cast<std::size_t>(e.o.row_stride);
  const float* q = call.q + row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group);
  const auto o_at = row_of(e.o, at.b * e.T + at.first, at.g, at.head_in_group);
  ToColumns(q, q_row, count, o.size, static_cast<float>(e.scale * log2_of_e), o.q_columns);
  ToColumns(call.d_o + o_at, o_row, count, o.size, 1.0F, o.d_columns);
  ToDense(q, q_row, count, o, static_cast<float>(e.scale), o.q_rows);
  ToDense(call.d_o + o_at, o_row, count, o, 1.0F, o.d_rows);
  std::fill_n(o.dq, o.size * width, 0.0F);
  const float* lse = call.lse + (at.b * e.H + at.head) * e.T + at.first;
  for (std::size_t i = 0; i < width; ++i) {
    o.lse[i] = i < count ? lse[i] * log2_of_e : 0.0F;
    o.delta[i] = i < count ? Dot(call.o + o_at + static_cast<std::int64_t>(i * o_row),
                                 call.d_o + o_at + static_cast<std::int64_t>(i * o_row), o.size)
                           : 0.0F;
  }
}

/// Probability and gradient of the score.
struct Pair {
  V p, ds;
};

/// One vector of scores and dp to p and ds. With dropout, `keep` is 1 / (1 - rate) or 0.
template <bool drops>
HWY_INLINE Pair Soften(V score, V dp, V lse, V delta, V keep) {
  const V p = math::Exp2OfNegative(D(), hn::Sub(score, lse));
  if (drops) return {hn::Mul(p, keep), hn::Mul(p, hn::MulSub(dp, keep, delta))};
  return {p, hn::Mul(p, hn::Sub(dp, delta))};
}

/// o.p holds scores and o.ds holds dp; both are replaced, by p and ds. Exactly 0 where a key is not visible.
template <bool drops>
HWY_INLINE void SoftenBlock(const Sight& sight, const KeyBlock& block, Operands& o) {
  const D d;
  for (std::size_t v = 0; v < vectors; ++v) {
    const V lse = hn::Load(d, o.lse + v * lanes), delta = hn::Load(d, o.delta + v * lanes);
    for (std::size_t s = 0; s < block.Strips(); ++s) {
      if (!block.Holds(s, v)) continue;
      const auto keys = block.KeysOf(s);
      const auto key = block.first + static_cast<std::int64_t>(s * strip);
      const bool all = sight.All(v, key, static_cast<std::int64_t>(keys));
      for (std::size_t i = 0; i < keys; ++i) {
        const auto at = (s * strip + i) * width + v * lanes;
        auto now = Soften<drops>(hn::Load(d, o.p + at), hn::Load(d, o.ds + at), lse, delta, hn::Load(d, o.keep + at));
        if (!all) {
          const auto blind = Blind(sight, v, key + static_cast<std::int64_t>(i));
          now = {hn::IfThenZeroElse(blind, now.p), hn::IfThenZeroElse(blind, now.ds)};
        }
        hn::Store(now.p, d, o.p + at);
        hn::Store(now.ds, d, o.ds + at);
      }
    }
  }
}

/// to[key][i] += sum over the queries of weights[key][query] rows[query][i]: dv and dk of a block of keys.
HWY_INLINE void AddToKeys(const KeyBlock& block, const Operands& o, const float* weights, const float* rows,
                          float* to) {
  EachRun(block, [&](std::size_t key, std::size_t count, std::size_t v, std::size_t n) HWY_ATTR {
    Multiply<true>({count, o.padded / lanes, n * lanes, weights + key * width + v * lanes, width,
                    rows + v * lanes * o.padded, o.padded, to + key * o.padded, o.padded, true});
  });
}

void BackwardBlock(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  const auto& e = call.e;
  const Scratch memory(OperandFloats(static_cast<std::size_t>(e.D)));
  Operands o;
  Carve(static_cast<std::size_t>(e.D), memory.data(), o);
  Sight sight;
  See(call.visible, e, at, sight);
  Pack(call, at, o);
  const auto k_row = static_cast<std::size_t>(e.k.row_stride), v_row = static_cast<std::size_t>(e.v.row_stride);
  for (auto key = sight.begin; key < sight.end; key += key_block) {
    const KeyBlock block = Cut(sight, key);
    const float* k = call.k + row_of(e.k, at.b * e.S + key, at.g);
    KeysTimesColumns(block, k, k_row, o.size, o.q_columns, o.p);
    if (e.softcap != 0) Cap(block, e.softcap, o.p, o.slope);
    KeysTimesColumns(block, call.v + row_of(e.v, at.b * e.S + key, at.g), v_row, o.size, o.d_columns, o.ds);
    if (call.mask.rate != 0) {
      Keep(call, at).Fill(block, o.keep);
      SoftenBlock<true>(sight, block, o);
    } else {
      SoftenBlock<false>(sight, block, o);
    }
    if (e.softcap != 0) MultiplyBlock(block, o.slope, o.ds);
    const auto row = static_cast<std::size_t>(key) * o.padded;
    AddToKeys(block, o, o.p, o.d_rows, to.dv + row);
    AddToKeys(block, o, o.ds, o.q_rows, to.dk + row);
    AddWeightedKeys(block, k, k_row, o.size, o.ds, o.dq);
  }
  const auto count = static_cast<std::size_t>(at.count), q_row = static_cast<std::size_t>(e.q.row_stride);
  float* dq = call.dq + row_of(e.q, at.b * e.T + at.first, at.g, at.head_in_group);
  if (call.earlier == Earlier::overwrite) {
    ToRows(o.dq, count, o.size, static_cast<float>(e.scale), dq, q_row);
    return;
  }
  ToRows(o.dq, count, o.size, static_cast<float>(e.scale), o.q_rows, o.padded);  // the queries are not needed any more
  for (std::size_t i = 0; i < count; ++i)
    for (std::size_t d = 0; d < o.size; ++d) dq[i * q_row + d] += o.q_rows[i * o.padded + d];
}

}  // namespace attention

void AttentionBackwardBlock(const AttentionCall& call, const QueryBlock& at, KeyGradients to) {
  attention::BackwardBlock(call, at, to);
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
