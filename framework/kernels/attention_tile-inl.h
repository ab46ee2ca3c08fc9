// Building blocks of the forward and the backward pass of attention, compiled once for each instruction set. Include
// after hwy/highway.h.
//
// A tile of scores is stored as [keys][queries]: a row is one key, its 48 floats are the queries of the block. The
// maximum and the sum over the keys of a query are therefore elementwise operations on vectors of queries, and no
// vector is summed across its lanes. Keys and values need not be packed: they are the left operand of every product,
// which is read one number at a time and broadcast.

#if defined(TESSERA_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ATTENTION_TILE_INL_H_
#undef TESSERA_KERNELS_ATTENTION_TILE_INL_H_
#else
#define TESSERA_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "framework/kernels/attention_call.h"
#include "framework/kernels/philox-inl.h"
#include "framework/kernels/philox.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/vector_math-inl.h"

#if defined(__clang__)
#define TESSERA_UNROLL _Pragma("unroll")
#else
#define TESSERA_UNROLL _Pragma("GCC unroll 16")
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace attention {

namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::lanes;
using range::V;

constexpr std::size_t width = static_cast<std::size_t>(query_block);  // queries in a row of a tile
constexpr std::size_t vectors = width / lanes;
constexpr std::size_t strip = 8;  // keys for which the visible vectors are determined together
constexpr std::size_t key_block = 64, strips = key_block / strip;
constexpr float log2_of_e = 1.44269504088896F;
static_assert(width % lanes == 0, "a block of queries is a whole number of vectors");

/// Arguments of c[r][n] = (c[r][n] +) sum over k of a(r, k) b[k][n], n in whole vectors. Strides are in floats.
struct TileProduct {
  std::size_t rows, vectors, depth;
  const float* a;
  std::size_t a_step;  // distance between rows r if k is the inner index of `a`, else between consecutive k
  const float* b;
  std::size_t b_row;
  float* c;
  std::size_t c_row;
  bool add;
};

/// R rows by N vectors of c in registers. dense_k selects the layout of a: a(r, k) = a[r * a_step + k], else
/// a[k * a_step + r]. The sums run over k in ascending order.
template <bool dense_k, int R, int N>
HWY_INLINE void Tile(const TileProduct& p, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                     float* HWY_RESTRICT c) {
  const D d;
  V sum[R][N];
  TESSERA_UNROLL for (int r = 0; r < R; ++r) {
    TESSERA_UNROLL for (int n = 0; n < N; ++n) {
      sum[r][n] = p.add ? hn::LoadU(d, c + static_cast<std::size_t>(r) * p.c_row + static_cast<std::size_t>(n) * lanes)
                        : hn::Zero(d);
    }
  }
  const std::size_t step = p.a_step;
  for (std::size_t k = p.depth; k != 0; --k) {
    V right[N];
    TESSERA_UNROLL for (int n = 0; n < N; ++n) right[n] = hn::LoadU(d, b + static_cast<std::size_t>(n) * lanes);
    TESSERA_UNROLL for (int r = 0; r < R; ++r) {
      const V left = hn::Set(d, a[dense_k ? static_cast<std::size_t>(r) * step : static_cast<std::size_t>(r)]);
      TESSERA_UNROLL for (int n = 0; n < N; ++n) sum[r][n] = hn::MulAdd(left, right[n], sum[r][n]);
    }
    a += dense_k ? 1 : step;
    b += p.b_row;
  }
  TESSERA_UNROLL for (int r = 0; r < R; ++r) {
    TESSERA_UNROLL for (int n = 0; n < N; ++n) {
      hn::StoreU(sum[r][n], d, c + static_cast<std::size_t>(r) * p.c_row + static_cast<std::size_t>(n) * lanes);
    }
  }
}

/// Rows of c that fit into the vector registers (32 with AVX-512, else 16) beside the operands.
template <int N>
constexpr int rows_at_once = lanes == 16 ? 8 : (N == 1 ? 8 : 4);

template <bool dense_k, int N>
HWY_INLINE void Columns(const TileProduct& p, const float* b, float* c) {
  constexpr int most = rows_at_once<N>;
  std::size_t r = 0;
  const std::size_t a_row = dense_k ? p.a_step : 1;
  for (; r + most <= p.rows; r += most) Tile<dense_k, most, N>(p, p.a + r * a_row, b, c + r * p.c_row);
  if (most > 4 && r + 4 <= p.rows) {
    Tile<dense_k, 4, N>(p, p.a + r * a_row, b, c + r * p.c_row);
    r += 4;
  }
  if (r + 2 <= p.rows) {
    Tile<dense_k, 2, N>(p, p.a + r * a_row, b, c + r * p.c_row);
    r += 2;
  }
  if (r < p.rows) Tile<dense_k, 1, N>(p, p.a + r * a_row, b, c + r * p.c_row);
}

template <bool dense_k>
HWY_NOINLINE void Multiply(const TileProduct& p) {
  std::size_t n = 0;
  const std::size_t even = p.vectors % 3 == 1 && p.vectors >= 4 ? p.vectors - 4 : p.vectors;  // 4 = 2 + 2
  for (; n + 3 <= even; n += 3) Columns<dense_k, 3>(p, p.b + n * lanes, p.c + n * lanes);
  for (; n + 2 <= p.vectors; n += 2) Columns<dense_k, 2>(p, p.b + n * lanes, p.c + n * lanes);
  if (n < p.vectors) Columns<dense_k, 1>(p, p.b + n * lanes, p.c + n * lanes);
}

/// The visible keys of each query of a block, and for each vector of queries the minimum and maximum over its lanes.
/// Lanes without a query, and queries that see no key, have an empty interval (first > last) after every key.
struct Sight {
  alignas(64) std::int32_t first[width], last[width];
  std::int32_t least_first[vectors], most_first[vectors], least_last[vectors], most_last[vectors];
  std::int64_t begin, end;         // range of keys that contains all keys seen by any query
  const std::uint8_t* among;       // row of the block's first query; null: no mask
  std::size_t queries, among_row;  // rows of `among`, and their length in bytes

  /// Whether any query of vector v may see any of the keys [key, key + keys). Decided by the bounds of the vector, so
  /// it can be true although no query sees any of them; never false although one does.
  HWY_INLINE bool Any(std::size_t v, std::int64_t key, std::int64_t keys) const {
    return least_first[v] < key + keys && most_last[v] >= key;
  }
  /// Whether every query of vector v sees all keys [key, key + keys), so that no mask needs to be computed.
  HWY_INLINE bool All(std::size_t v, std::int64_t key, std::int64_t keys) const {
    return among == nullptr && most_first[v] <= key && least_last[v] >= key + keys - 1;
  }
};

/// Fills `sight` for one block.
HWY_INLINE void See(const VisibleKeys& visible, const AttentionExtents& e, const QueryBlock& block, Sight& sight) {
  constexpr std::int32_t nowhere = std::numeric_limits<std::int32_t>::max();
  const auto row_of_first = static_cast<std::size_t>(block.b * e.T + block.first);
  sight.among_row = static_cast<std::size_t>(e.S);
  sight.queries = static_cast<std::size_t>(block.count);
  sight.among = visible.among.empty() ? nullptr : visible.among.data() + row_of_first * sight.among_row;
  sight.begin = nowhere;
  sight.end = 0;
  for (std::size_t i = 0; i < width; ++i) {
    const bool inside = static_cast<std::int64_t>(i) < block.count;
    const auto row = row_of_first + (inside ? i : 0);
    const bool sees = inside && visible.first[row] <= visible.last[row];
    sight.first[i] = sees ? visible.first[row] : nowhere;
    sight.last[i] = sees ? visible.last[row] : -1;
  }
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto [a, b] = std::minmax_element(sight.first + v * lanes, sight.first + (v + 1) * lanes);
    const auto [c, z] = std::minmax_element(sight.last + v * lanes, sight.last + (v + 1) * lanes);
    sight.least_first[v] = *a;
    sight.most_first[v] = *b;
    sight.least_last[v] = *c;
    sight.most_last[v] = *z;
    sight.begin = std::min<std::int64_t>(sight.begin, *a);
    sight.end = std::max<std::int64_t>(sight.end, *z + 1);
  }
}

/// The lanes of vector v that do not see `key`.
HWY_INLINE hn::Mask<D> Blind(const Sight& sight, std::size_t v, std::int64_t key) {
  const hn::RebindToSigned<D> di;
  const auto at = hn::Set(di, static_cast<std::int32_t>(key));
  const auto first = hn::Load(di, sight.first + v * lanes), last = hn::Load(di, sight.last + v * lanes);
  const auto outside = hn::Or(hn::Gt(first, at), hn::Lt(last, at));
  if (sight.among == nullptr) return hn::RebindMask(D(), outside);
  alignas(64) std::int32_t seen[lanes] = {};
  for (std::size_t l = 0; l < lanes && v * lanes + l < sight.queries; ++l) {
    seen[l] = sight.among[(v * lanes + l) * sight.among_row + static_cast<std::size_t>(key)];
  }
  return hn::RebindMask(D(), hn::Or(outside, hn::Eq(hn::Load(di, seen), hn::Zero(di))));
}

/// Up to `key_block` keys from `first`. For each strip of 8 keys, [begin, end) is the smallest range of query vectors
/// outside which no query sees any of them: only that range is computed.
struct KeyBlock {
  std::int64_t first;
  std::size_t keys;
  std::size_t begin[strips], end[strips];

  std::size_t Strips() const { return (keys + strip - 1) / strip; }
  std::size_t KeysOf(std::size_t s) const { return std::min(strip, keys - s * strip); }
  bool Holds(std::size_t s, std::size_t v) const { return begin[s] <= v && v < end[s]; }
};

HWY_INLINE KeyBlock Cut(const Sight& sight, std::int64_t first) {
  KeyBlock block;
  block.first = first;
  block.keys = static_cast<std::size_t>(std::min<std::int64_t>(key_block, sight.end - first));
  for (std::size_t s = 0; s < block.Strips(); ++s) {
    const auto key = first + static_cast<std::int64_t>(s * strip), keys = static_cast<std::int64_t>(block.KeysOf(s));
    std::size_t begin = 0, end = vectors;
    while (begin < end && !sight.Any(begin, key, keys)) ++begin;
    while (begin < end && !sight.Any(end - 1, key, keys)) --end;
    block.begin[s] = begin;
    block.end[s] = end;
  }
  return block;
}

/// Calls f(first key in the block, keys, first vector, vectors) for each run of consecutive strips with the same range
/// of vectors, so that one product covers as many keys as possible.
template <class F>
HWY_INLINE void EachRun(const KeyBlock& block, const F& f) {
  for (std::size_t s = 0; s < block.Strips();) {
    std::size_t next = s + 1;
    while (next < block.Strips() && block.begin[next] == block.begin[s] && block.end[next] == block.end[s]) ++next;
    const auto keys = std::min(block.keys, next * strip) - s * strip;
    if (block.begin[s] < block.end[s]) f(s * strip, keys, block.begin[s], block.end[s] - block.begin[s]);
    s = next;
  }
}

/// Transpose: to[i][lane] = x[lane][i] * factor for i < size and lane < count; lanes from `count` on are zero.
HWY_INLINE void ToColumns(const float* x, std::size_t x_row, std::size_t count, std::size_t size, float factor,
                          float* to) {
  std::size_t lane = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto by = hn::Set(d, factor);
  for (; lane + 4 <= count; lane += 4) {
    const float* row = x + lane * x_row;
    std::size_t i = 0;
    for (; i + 4 <= size; i += 4) {
      const auto a = hn::LoadU(d, row + i), b = hn::LoadU(d, row + x_row + i);
      const auto c = hn::LoadU(d, row + 2 * x_row + i), e = hn::LoadU(d, row + 3 * x_row + i);
      const auto ab = hn::BitCast(wide, hn::InterleaveLower(d, a, b)),
                 AB = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
      const auto ce = hn::BitCast(wide, hn::InterleaveLower(d, c, e)),
                 CE = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
      float* at = to + i * width + lane;
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveLower(wide, ab, ce))), d, at);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce))), d, at + width);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveLower(wide, AB, CE))), d, at + 2 * width);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveUpper(wide, AB, CE))), d, at + 3 * width);
    }
    for (; i < size; ++i)
      for (std::size_t l = 0; l < 4; ++l) to[i * width + lane + l] = row[l * x_row + i] * factor;
  }
#endif
  for (; lane < count; ++lane)
    for (std::size_t i = 0; i < size; ++i) to[i * width + lane] = x[lane * x_row + i] * factor;
  if (count < width)
    for (std::size_t i = 0; i < size; ++i) std::fill_n(to + i * width + count, width - count, 0.0F);
}

/// Inverse of ToColumns: y[lane][i] = x[i][lane] * factor for lane < count and i < size.
HWY_INLINE void ToRows(const float* x, std::size_t count, std::size_t size, float factor, float* y, std::size_t y_row) {
  std::size_t lane = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto by = hn::Set(d, factor);
  for (; lane + 4 <= count; lane += 4) {
    std::size_t i = 0;
    for (; i + 4 <= size; i += 4) {
      const float* at = x + i * width + lane;
      const auto a = hn::LoadU(d, at), b = hn::LoadU(d, at + width);
      const auto c = hn::LoadU(d, at + 2 * width), e = hn::LoadU(d, at + 3 * width);
      const auto ab = hn::BitCast(wide, hn::InterleaveLower(d, a, b)),
                 AB = hn::BitCast(wide, hn::InterleaveUpper(d, a, b));
      const auto ce = hn::BitCast(wide, hn::InterleaveLower(d, c, e)),
                 CE = hn::BitCast(wide, hn::InterleaveUpper(d, c, e));
      float* row = y + lane * y_row + i;
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveLower(wide, ab, ce))), d, row);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveUpper(wide, ab, ce))), d, row + y_row);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveLower(wide, AB, CE))), d, row + 2 * y_row);
      hn::StoreU(hn::Mul(by, hn::BitCast(d, hn::InterleaveUpper(wide, AB, CE))), d, row + 3 * y_row);
    }
    for (; i < size; ++i)
      for (std::size_t l = 0; l < 4; ++l) y[(lane + l) * y_row + i] = x[i * width + lane + l] * factor;
  }
#endif
  for (; lane < count; ++lane)
    for (std::size_t i = 0; i < size; ++i) y[lane * y_row + i] = x[i * width + lane] * factor;
}

/// to[key][lane] = sum over i of keys[key][i] columns[i][lane], for the visible range of the block: scores from keys
/// and queries, or dp from values and do.
HWY_INLINE void KeysTimesColumns(const KeyBlock& block, const float* keys, std::size_t row, std::size_t size,
                                 const float* columns, float* to) {
  EachRun(block, [&](std::size_t key, std::size_t count, std::size_t v, std::size_t n) HWY_ATTR {
    Multiply<true>({count, n, size, keys + key * row, row, columns + v * lanes, width, to + key * width + v * lanes,
                    width, false});
  });
}

/// columns[i][lane] += sum over the keys of the block of keys[key][i] weights[key][lane]: o from the values, dq from
/// the keys.
HWY_INLINE void AddWeightedKeys(const KeyBlock& block, const float* keys, std::size_t row, std::size_t size,
                                const float* weights, float* columns) {
  EachRun(block, [&](std::size_t key, std::size_t count, std::size_t v, std::size_t n) HWY_ATTR {
    Multiply<false>({size, n, count, keys + key * row, row, weights + key * width + v * lanes, width,
                     columns + v * lanes, width, true});
  });
}

/// Soft-caps scores that are already multiplied by log2(e): s becomes c tanh(s / c) with c = cap log2(e). The
/// derivative 1 - tanh^2 goes to `slopes`, unless that is null.
HWY_INLINE void Cap(const KeyBlock& block, double cap, float* scores, float* slopes) {
  const D d;
  constexpr double log2_of_e_exactly = 1.4426950408889634;
  const V most = hn::Set(d, static_cast<float>(cap * log2_of_e_exactly)), one = hn::Set(d, 1.0F);
  const V inverse = hn::Set(d, static_cast<float>(1 / (cap * log2_of_e_exactly)));
  for (std::size_t s = 0; s < block.Strips(); ++s) {
    for (std::size_t i = s * strip; i < s * strip + block.KeysOf(s); ++i) {
      for (std::size_t v = block.begin[s]; v < block.end[s]; ++v) {
        const auto at = i * width + v * lanes;
        const V share = math::Tanh(d, hn::Mul(hn::Load(d, scores + at), inverse));
        hn::Store(hn::Mul(share, most), d, scores + at);
        if (slopes != nullptr) hn::Store(hn::NegMulAdd(share, share, one), d, slopes + at);
      }
    }
  }
}

/// Adds the bias of the call's Alibi to scores that are already multiplied by log2(e), in the visible range of the
/// block.
HWY_INLINE void AddBias(const AttentionCall& call, const QueryBlock& at, const KeyBlock& block, float* scores) {
  const D d;
  const HeadBias bias(call.e.alibi, at.head, 1.4426950408889634);
  alignas(64) float queries[width];
  for (std::size_t i = 0; i < width; ++i) queries[i] = bias.query(at.first + static_cast<std::int64_t>(i));
  const V by = hn::Set(d, bias.factor);
  for (std::size_t i = 0; i < block.keys; ++i) {
    const V key = hn::Set(d, bias.key(block.first + static_cast<std::int64_t>(i)));
    float* row = scores + i * width;
    for (auto v = block.begin[i / strip]; v < block.end[i / strip]; ++v) {
      const V distance = hn::Sub(key, hn::Load(d, queries + v * lanes));
      hn::Store(hn::MulAdd(by, distance, hn::Load(d, row + v * lanes)), d, row + v * lanes);
    }
  }
}

/// Turns the products of queries and keys, multiplied by scale and log2(e), into scores: soft cap, then bias. The
/// derivative of the soft cap goes to `slopes`, unless that is null.
HWY_INLINE void ToScores(const AttentionCall& call, const QueryBlock& at, const KeyBlock& block, float* scores,
                         float* slopes) {
  if (call.e.softcap != 0) Cap(block, call.e.softcap, scores, slopes);
  if (!call.e.alibi.slopes.empty()) AddBias(call, at, block, scores);
}

/// to[key][lane] *= by[key][lane] in the visible range of the block.
HWY_INLINE void MultiplyBlock(const KeyBlock& block, const float* by, float* to) {
  const D d;
  for (std::size_t s = 0; s < block.Strips(); ++s) {
    for (std::size_t i = s * strip; i < s * strip + block.KeysOf(s); ++i) {
      for (std::size_t v = block.begin[s]; v < block.end[s]; ++v) {
        const auto at = i * width + v * lanes;
        hn::Store(hn::Mul(hn::Load(d, to + at), hn::Load(d, by + at)), d, to + at);
      }
    }
  }
}

/// Dropout of the probabilities of a block of queries. Element (head * mask_rows + t) * mask_columns + s of the sample
/// decides whether the probability of (head, t, s) is dropped, so every parallel layout and both passes drop the same
/// probabilities.
class Keep {
 public:
  Keep(const AttentionCall& call, const QueryBlock& block)
      : key_(call.mask.key.key()),
        limit_(dropout_limit(call.mask.rate)),
        factor_(static_cast<float>(1 / (1 - call.mask.rate))),
        id_(static_cast<std::uint64_t>(call.mask.sample_ids[static_cast<std::size_t>(block.b)])) {
    const auto row = block.head * call.e.mask_rows() + block.first;
    start_ = static_cast<std::uint64_t>(call.mask.first_element + row * call.e.mask_columns());
    step_ = static_cast<std::uint64_t>(call.e.mask_columns());
  }

  /// to[key][lane] = 1 / (1 - rate) if kept, else 0, in the visible range of the block.
  HWY_INLINE void Fill(const KeyBlock& block, float* to) const {
    for (std::size_t v = 0; v < vectors; ++v) FillVector(block, v, to + v * lanes);
  }

 private:
  using DU = philox4x32::DU;
  using VU = philox4x32::VU;

  HWY_INLINE VU Pick(const hn::Mask<DU>* behind, VU a, VU b, VU c, VU e) const {
    return hn::IfThenElse(behind[0], a, hn::IfThenElse(behind[1], b, hn::IfThenElse(behind[2], c, e)));
  }

  HWY_INLINE void FillVector(const KeyBlock& block, std::size_t v, float* to) const {
    const DU d;
    alignas(64) std::uint32_t low[lanes], high[lanes], word[lanes];
    bool aligned = true;
    for (std::size_t l = 0; l < lanes; ++l) {  // the first word of each query: its row in [T, S]
      const auto element = start_ + (v * lanes + l) * step_ + static_cast<std::uint64_t>(block.first);
      low[l] = static_cast<std::uint32_t>(element / 4);
      high[l] = static_cast<std::uint32_t>(element / 4 >> 32);
      word[l] = static_cast<std::uint32_t>(element % 4);
      aligned = aligned && word[l] == 0;
    }
    const philox4x32::HighLow base = {hn::Load(d, high), hn::Load(d, low)};
    const VU behind = hn::Load(d, word);
    const hn::Mask<DU> is[3] = {hn::Eq(behind, hn::Set(d, 0)), hn::Eq(behind, hn::Set(d, 1)),
                                hn::Eq(behind, hn::Set(d, 2))};
    for (std::size_t s = 0; s < block.Strips(); ++s) {
      if (!block.Holds(s, v)) continue;
      auto now = philox4x32::BlocksAhead(base, static_cast<std::uint32_t>(s * strip / 4), id_, key_);
      for (std::size_t i = s * strip; i < s * strip + block.KeysOf(s); i += 4) {
        if (aligned) {
          Write({now.w0, now.w1, now.w2, now.w3}, to + i * width);
          if (i % strip == 0) now = philox4x32::BlocksAhead(base, static_cast<std::uint32_t>(i / 4 + 1), id_, key_);
          continue;
        }
        const auto next = philox4x32::BlocksAhead(base, static_cast<std::uint32_t>(i / 4 + 1), id_, key_);
        Write({Pick(is, now.w0, now.w1, now.w2, now.w3), Pick(is, now.w1, now.w2, now.w3, next.w0),
               Pick(is, now.w2, now.w3, next.w0, next.w1), Pick(is, now.w3, next.w0, next.w1, next.w2)},
              to + i * width);
        now = next;
      }
    }
  }

  HWY_INLINE void Write(philox4x32::Words w, float* to) const {
    const VU limit = hn::Set(DU(), limit_);
    const V factor = hn::Set(D(), factor_);
    const auto kept = [&](VU word)
                          HWY_ATTR { return hn::IfThenZeroElse(hn::RebindMask(D(), hn::Lt(word, limit)), factor); };
    hn::StoreU(kept(w.w0), D(), to);
    hn::StoreU(kept(w.w1), D(), to + width);
    hn::StoreU(kept(w.w2), D(), to + 2 * width);
    hn::StoreU(kept(w.w3), D(), to + 3 * width);
  }

  std::array<std::uint32_t, 2> key_;
  std::uint32_t limit_;
  float factor_;
  std::uint64_t id_, start_, step_;
};

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#endif
