// Operands of attention in 16 bits, compiled once for each instruction set. Include after attention_tile-inl.h.
//
// If the instruction set multiplies pairs of bfloat16 (gemm_tiles.h), products run on its register tiles: rows of keys
// and values are read in place, columns of queries are packed as pairs along the channels, and probabilities are
// rounded to bfloat16 and packed as pairs along the keys or along the queries. Otherwise rows are widened to floats,
// one block of keys at a time.

#if defined(TESSERA_KERNELS_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ATTENTION_PAIRS_INL_H_
#undef TESSERA_KERNELS_ATTENTION_PAIRS_INL_H_
#else
#define TESSERA_KERNELS_ATTENTION_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include "framework/kernels/attention_pairs.h"
#include "framework/kernels/attention_tile-inl.h"
#include "framework/kernels/type_conversion.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace attention {

static_assert(key_block == packed_keys, "a block of keys is what PackedKeys packs together");

/// Rows of one head as floats.
struct FloatRows {
  const float* at;
  std::size_t row;
};

/// to[i] = x[i] as float. Inlined, because a call of widen_range() for each short row would double the time.
HWY_INLINE void WidenRow(const Elements& x, std::size_t size, float* to) {
  std::size_t i = 0;
  if (x.type == DType::bfloat16) {
    const hn::RebindToUnsigned<D> d;
    const hn::Rebind<std::uint16_t, decltype(d)> half;
    const auto* bits = reinterpret_cast<const std::uint16_t*>(x.at);
    for (; i + lanes <= size; i += lanes) {
      const auto word = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, bits + i)));
      hn::StoreU(hn::BitCast(D(), word), D(), to + i);
    }
    for (; i < size; ++i) to[i] = static_cast<float>(reinterpret_cast<const bfloat16*>(x.at)[i]);
    return;
  }
#if HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> half;
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(x.at);
  for (; i + lanes <= size; i += lanes) hn::StoreU(hn::PromoteTo(D(), hn::LoadU(half, halves + i)), D(), to + i);
#endif
  for (; i < size; ++i) to[i] = static_cast<float>(reinterpret_cast<const float16*>(x.at)[i]);
}

/// `count` rows of `size` elements of x as floats: in place if x is float32, else widened into `memory` [count, size].
/// The first row begins at element `first` of x, and rows are `row` elements apart.
HWY_INLINE FloatRows RowsOf(const Elements& x, std::int64_t first, std::int64_t row, std::size_t count,
                            std::size_t size, float* memory) {
  if (x.type == DType::float32) return {reinterpret_cast<const float*>(x.at) + first, static_cast<std::size_t>(row)};
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = first + static_cast<std::int64_t>(i) * row;
    WidenRow(x.part(static_cast<std::size_t>(at), size), size, memory + i * size);
  }
  return {memory, size};
}

/// Inverse of ToColumns with an output of any type: element i of row `lane` of y = x[i][lane] * factor for lane <
/// count. The first row begins at element `first` of y, and rows are `row` elements apart. `memory` has [count, size]
/// floats and is not used if y is float32.
HWY_INLINE void ToRowsOf(const float* x, std::size_t count, std::size_t size, float factor, const MutableElements& y,
                         std::int64_t first, std::int64_t row, float* memory) {
  if (y.type == DType::float32) {
    ToRows(x, count, size, factor, reinterpret_cast<float*>(y.at) + first, static_cast<std::size_t>(row));
    return;
  }
  ToRows(x, count, size, factor, memory, size);
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = first + static_cast<std::int64_t>(i) * row;
    narrow_range({memory + i * size, size}, y.part(static_cast<std::size_t>(at), size));
  }
}

/// scores *= factor in the visible range of the block.
HWY_INLINE void Scale(const KeyBlock& block, float factor, float* scores) {
  const V by = hn::Set(D(), factor);
  for (std::size_t i = 0; i < block.keys; ++i) {
    float* row = scores + i * width;
    for (auto v = block.begin[i / strip]; v < block.end[i / strip]; ++v)
      hn::Store(hn::Mul(hn::Load(D(), row + v * lanes), by), D(), row + v * lanes);
  }
}

using Words = hn::VFromD<hn::RebindToUnsigned<D>>;

/// Rounds each lane to bfloat16, to nearest, ties to even: the upper 16 bits are the result, the lower 16 bits are
/// undefined.
HWY_INLINE Words Rounded(V x) {
  const hn::RebindToUnsigned<D> d;
  const Words word = hn::BitCast(d, x);
  const Words odd = hn::And(hn::ShiftRight<16>(word), hn::Set(d, 1));
  return hn::Add(word, hn::Add(odd, hn::Set(d, 0x7fff)));
}

/// Vector v of row i of a tile times `by`; zero outside the visible range of the block.
HWY_INLINE V HeldPart(const KeyBlock& block, const float* tile, std::size_t i, std::size_t v, V by) {
  if (i >= block.keys || !block.Holds(i / strip, v)) return hn::Zero(D());
  return hn::Mul(hn::Load(D(), tile + i * width + v * lanes), by);
}

/// Packs a tile [keys][queries], multiplied by `factor`, as pairs along the keys into panels of `shape`: the right
/// operand of sums over keys.
HWY_INLINE void ToPairsOfKeys(const KeyBlock& block, const float* tile, float factor, const PanelShape& shape,
                              float* to) {
  const hn::RebindToUnsigned<D> d;
  const V by = hn::Set(D(), factor);
  const Words upper = hn::Set(d, 0xffff0000U);
  for (std::size_t v = 0; v < vectors; ++v) {
    const auto column = static_cast<std::int64_t>(v * lanes);
    if (column >= shape.cols) return;
    float* panel = to + shape.at(column);
    const auto row = static_cast<std::size_t>(shape.width(column));
    const std::size_t room = row - static_cast<std::size_t>(column % shape.panel_cols);
    for (std::size_t i = 0; i < block.keys; i += 2) {
      const Words even = Rounded(HeldPart(block, tile, i, v, by)), odd = Rounded(HeldPart(block, tile, i + 1, v, by));
      const V pair = hn::BitCast(D(), hn::Or(hn::ShiftRight<16>(even), hn::And(odd, upper)));
      if (room >= lanes) {
        hn::StoreU(pair, D(), panel + i / 2 * row);
      } else {
        range::StoreTail(pair, panel + i / 2 * row, room);
      }
    }
  }
}

/// Writes a tile [keys][queries], multiplied by `factor`, as rows of bfloat16 that are `row` words apart: pairs along
/// the queries, the left operand of sums over queries. Words after the `width` elements of a row stay unchanged.
HWY_INLINE void ToPairsOfQueries(const KeyBlock& block, const float* tile, float factor, std::size_t row, float* to) {
  const hn::RebindToSigned<D> d;
  const hn::Rebind<std::uint16_t, D> half;
  const V by = hn::Set(D(), factor);
  for (std::size_t i = 0; i < block.keys; ++i) {
    auto* at = reinterpret_cast<std::uint16_t*>(to + i * row);
    for (std::size_t v = 0; v < vectors; ++v) {
      const Words word = hn::ShiftRight<16>(Rounded(HeldPart(block, tile, i, v, by)));
      hn::StoreU(hn::DemoteTo(half, hn::BitCast(d, word)), half, at + v * lanes);
    }
  }
}

}  // namespace attention
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#endif
