// Attention of a single query, as decoding needs it: one pass over the keys and one over the values, vectors along the
// channels of a head. Bound by memory bandwidth, so keys and values are read once and nothing is packed.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/attention_row.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "framework/kernels/attention_call.h"
#include "framework/kernels/attention_tiles.h"
#include "framework/kernels/philox.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::lanes;
using range::V;

/// Rows to prefetch ahead. The rows of one head lie pages apart (a row holds all heads), where the hardware prefetcher
/// does not follow.
constexpr std::size_t ahead = 16;

HWY_INLINE void Prefetch(const float* row, std::size_t size) {
  constexpr std::size_t line = 16;
  for (std::size_t i = 0; i < size; i += line) hwy::Prefetch(row + i);
}

/// Dot products of q with four consecutive rows of keys; four independent sums hide the latency of multiply-add.
HWY_INLINE void FourDots(const float* q, const float* k, std::size_t row, std::size_t size, float* to) {
  const D d;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const auto run = [&](std::size_t i, auto load) HWY_ATTR {
    const V left = load(q + i);
    s0 = hn::MulAdd(left, load(k + i), s0);
    s1 = hn::MulAdd(left, load(k + row + i), s1);
    s2 = hn::MulAdd(left, load(k + 2 * row + i), s2);
    s3 = hn::MulAdd(left, load(k + 3 * row + i), s3);
  };
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) run(i, range::Whole());
  if (i < size) run(i, range::Tail{size - i});
  to[0] = hn::GetLane(hn::SumOfLanes(d, s0));
  to[1] = hn::GetLane(hn::SumOfLanes(d, s1));
  to[2] = hn::GetLane(hn::SumOfLanes(d, s2));
  to[3] = hn::GetLane(hn::SumOfLanes(d, s3));
}

HWY_INLINE float OneDot(const float* q, const float* k, std::size_t size) {
  return static_cast<float>(
      range::Sum(size, [&](std::size_t i, auto load) HWY_ATTR { return hn::Mul(load(q + i), load(k + i)); }));
}

/// p[s] = scale * dot(q, k_s); returns the maximum.
float Scores(const float* q, const float* k, std::size_t row, std::size_t size, std::size_t keys, float scale,
             float* p) {
  std::size_t s = 0;
  for (; s + 4 <= keys; s += 4) {
    for (std::size_t next = s + ahead; next < std::min(keys, s + ahead + 4); ++next) Prefetch(k + next * row, size);
    FourDots(q, k + s * row, row, size, p + s);
  }
  for (; s < keys; ++s) p[s] = OneDot(q, k + s * row, size);
  float most = -std::numeric_limits<float>::infinity();
  for (s = 0; s < keys; ++s) {
    p[s] *= scale;
    most = std::max(most, p[s]);
  }
  return most;
}

/// Turns the scaled products p of the query with `keys` keys from `first` on into scores: soft cap, bias, and -infinity
/// for keys that VisibleKeys::among hides. Returns the maximum.
float Adjust(const AttentionCall& call, const QueryBlock& at, std::int64_t first, std::size_t keys, float* p) {
  const auto& e = call.e;
  if (e.softcap != 0) {
    const V most = hn::Set(D(), static_cast<float>(e.softcap)),
            inverse = hn::Set(D(), static_cast<float>(1 / e.softcap));
    range::Map(p, p, keys, [&](V v) HWY_ATTR { return hn::Mul(most, math::Tanh(D(), hn::Mul(v, inverse))); });
  }
  if (!e.alibi.slopes.empty()) {
    const HeadBias bias(e.alibi, at.head, 1);
    const float query = bias.query(at.first);
    for (std::size_t s = 0; s < keys; ++s)
      p[s] += bias.factor * (bias.key(first + static_cast<std::int64_t>(s)) - query);
  }
  const auto* among =
      call.visible.among.empty() ? nullptr : call.visible.among.data() + (at.b * e.T + at.first) * e.S + first;
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t s = 0; s < keys; ++s) {
    if (among != nullptr && among[s] == 0) p[s] = -std::numeric_limits<float>::infinity();
    most = std::max(most, p[s]);
  }
  return most;
}

/// The result of a query without visible keys.
void SeesNothing(float sink, std::size_t size, float* o, float& lse) {
  std::fill_n(o, size, 0.0F);
  lse = sink;
}

/// p[s] = e^(p[s] - most); returns the sum, in double.
double Powers(float* p, std::size_t keys, float most) {
  const V shift = hn::Set(D(), most);
  range::Map(p, p, keys, [&](V v) HWY_ATTR { return math::Exp(D(), hn::Sub(v, shift)); });
  return range::Sum(keys, [&](std::size_t i, auto load) HWY_ATTR { return load(p + i); });
}

/// o = factor * sum over s of p[s] v_s, in ascending order of s. Four vectors of channels per pass over the values.
void WeightedValues(const float* p, const float* v, std::size_t row, std::size_t size, std::size_t keys, float factor,
                    float* o) {
  const D d;
  const V by = hn::Set(d, factor);
  std::size_t i = 0;
  for (; i + 4 * lanes <= size; i += 4 * lanes) {
    V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    const float* at = v + i;
    for (std::size_t s = 0; s < keys; ++s, at += row) {
      if (s + ahead < keys) Prefetch(at + ahead * row, 4 * lanes);
      const V share = hn::Set(d, p[s]);
      s0 = hn::MulAdd(share, hn::LoadU(d, at), s0);
      s1 = hn::MulAdd(share, hn::LoadU(d, at + lanes), s1);
      s2 = hn::MulAdd(share, hn::LoadU(d, at + 2 * lanes), s2);
      s3 = hn::MulAdd(share, hn::LoadU(d, at + 3 * lanes), s3);
    }
    hn::StoreU(hn::Mul(s0, by), d, o + i);
    hn::StoreU(hn::Mul(s1, by), d, o + i + lanes);
    hn::StoreU(hn::Mul(s2, by), d, o + i + 2 * lanes);
    hn::StoreU(hn::Mul(s3, by), d, o + i + 3 * lanes);
  }
  for (; i + lanes <= size; i += lanes) {
    V sum = hn::Zero(d);
    for (std::size_t s = 0; s < keys; ++s) sum = hn::MulAdd(hn::Set(d, p[s]), hn::LoadU(d, v + s * row + i), sum);
    hn::StoreU(hn::Mul(sum, by), d, o + i);
  }
  for (; i < size; ++i) {
    float sum = 0;
    for (std::size_t s = 0; s < keys; ++s) sum += p[s] * v[s * row + i];
    o[i] = sum * factor;
  }
}

void AttentionForwardRow(const AttentionCall& call, const QueryBlock& at) {
  const auto& e = call.e;
  const auto query = at.b * e.T + at.first;
  const std::int64_t first = call.visible.first[static_cast<std::size_t>(query)];
  const std::int64_t last = call.visible.last[static_cast<std::size_t>(query)];
  const auto size = static_cast<std::size_t>(e.D);
  float* o = floats_at(call.out, row_of(e.o, query, at.g, at.head_in_group));
  float& lse = call.lse_out[(at.b * e.H + at.head) * e.T + at.first];
  const float sink = sink_of(call, at.head);
  if (last < first) return SeesNothing(sink, size, o, lse);
  const auto keys = static_cast<std::size_t>(last - first + 1);
  const Scratch scores(keys);
  float* p = scores.data();
  const float* q = floats_at(call.q, row_of(e.q, query, at.g, at.head_in_group));
  const float* k = floats_at(call.k, row_of(e.k, at.b * e.S + first, at.g));
  const float* v = floats_at(call.v, row_of(e.v, at.b * e.S + first, at.g));
  float most = Scores(q, k, static_cast<std::size_t>(e.k.row_stride), size, keys, static_cast<float>(e.scale), p);
  if (e.softcap != 0 || !call.visible.among.empty() || !e.alibi.slopes.empty()) most = Adjust(call, at, first, keys, p);
  if (most == -std::numeric_limits<float>::infinity()) return SeesNothing(sink, size, o, lse);
  most = std::max(most, sink);
  const double sum = Powers(p, keys, most) + std::exp(static_cast<double>(sink) - most);
  double factor = 1 / sum;
  if (call.mask.rate != 0) {
    const auto start = static_cast<std::uint64_t>(call.mask.first_element +
                                                  (at.head * e.mask_rows() + at.first) * e.mask_columns() + first);
    const auto id = static_cast<std::uint64_t>(call.mask.sample_ids[static_cast<std::size_t>(at.b)]);
    const auto limit = dropout_limit(call.mask.rate);
    for (std::size_t s = 0; s < keys; ++s) {
      if (call.mask.key.words(id, (start + s) / 4)[(start + s) % 4] < limit) p[s] = 0;
    }
    factor /= 1 - call.mask.rate;
  }
  WeightedValues(p, v, static_cast<std::size_t>(e.v.row_stride), size, keys, static_cast<float>(factor), o);
  lse = static_cast<float>(most + std::log(sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(AttentionForwardRow);

void attention_forward_row(const AttentionCall& call, const QueryBlock& at) {
  HWY_DYNAMIC_DISPATCH(AttentionForwardRow)(call, at);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
