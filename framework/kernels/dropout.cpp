// Dropout in Highway: the random words of a range are drawn into a buffer on the stack, then compared as integers.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/dropout.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "framework/kernels/dropout.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/keyed_ranges.h"
#include "framework/kernels/philox-inl.h"
#include "framework/kernels/philox.h"
#include "framework/kernels/range-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// philox_words for this instruction set. Each lane computes one block of four words; they are interleaved on storing,
/// so the order of the words does not depend on the vector length.
void DrawWords(const RandomKey& key, std::uint64_t id, std::uint64_t first_block, std::size_t blocks,
               std::uint32_t* words) {
  const philox4x32::DU d;
  constexpr std::size_t lanes = range::lanes;
  for (std::size_t i = 0; i < blocks; i += lanes) {
    const std::uint64_t block = first_block + i;
    const auto low = static_cast<std::uint32_t>(block), high = static_cast<std::uint32_t>(block >> 32);
    philox4x32::VU lows = hn::Iota(d, low), highs = hn::Set(d, high);
    // Carry of the 64-bit block number into its upper half: a mask of all ones is -1.
    highs = hn::Sub(highs, hn::VecFromMask(d, hn::Lt(lows, hn::Set(d, low))));
    const auto w = philox4x32::Blocks(
        {lows, highs, hn::Set(d, static_cast<std::uint32_t>(id)), hn::Set(d, static_cast<std::uint32_t>(id >> 32))},
        key.key());
    if (i + lanes <= blocks) {
      hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, d, words + 4 * i);
    } else {
      alignas(64) std::uint32_t last[4 * lanes];
      hn::StoreInterleaved4(w.w0, w.w1, w.w2, w.w3, d, last);
      std::copy_n(last, 4 * (blocks - i), words + 4 * i);
    }
  }
}

/// y[i] = (residual[i] +) x[i] * factor if words[i] >= limit, else (residual[i] +) 0. Reads up to one vector past
/// words[size - 1].
void KeepSome(const float* x, const float* residual, const std::uint32_t* words, std::uint32_t limit, float factor,
              float* y, std::size_t size) {
  const range::D d;
  const philox4x32::DU du;
  const auto most = hn::Set(du, limit);
  const auto by = hn::Set(d, factor);
  const auto run = [&](std::size_t i, auto load) HWY_ATTR {
    const auto drops = hn::RebindMask(d, hn::Lt(hn::LoadU(du, words + i), most));
    const auto kept = hn::IfThenZeroElse(drops, hn::Mul(load(x + i), by));
    return residual == nullptr ? kept : hn::Add(load(residual + i), kept);
  };
  std::size_t i = 0;
  for (; i + range::lanes <= size; i += range::lanes) hn::StoreU(run(i, range::Whole()), d, y + i);
  if (i < size) range::StoreTail(run(i, range::Tail{size - i}), y + i, size - i);
}

/// y = (residual +) x: dropout with rate 0.
void AddOrCopy(const float* x, const float* residual, float* y, std::size_t size) {
  if (residual == nullptr) {
    if (x != y) std::copy_n(x, size, y);
  } else {
    range::Map(x, residual, y, size, [](range::V a, range::V b) HWY_ATTR { return hn::Add(b, a); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(DrawWords);
HWY_EXPORT(KeepSome);
HWY_EXPORT(AddOrCopy);

constexpr std::size_t dropout_tile = 4096;

/// Operands of y = (residual +) x * keep / (1 - rate), as floats of one tile; residual may have no elements.
struct Operands {
  Operands(const Elements& of_x, const Elements& of_residual, const MutableElements& of_y)
      : x(of_x), residual(of_residual), y(of_y), floats(x.in_place() && residual.in_place() && y.in_place()) {}
  FloatReader x, residual;
  FloatWriter y;
  bool floats;
};

void apply_dropout(Threads& threads, const DropoutMask& mask, const Elements& x, const Elements& residual,
                   const MutableElements& y) {
  must(mask.rate >= 0 && mask.rate < 1, "a dropout rate is in [0, 1)");
  const auto elements = x.size();
  if (mask.rate == 0) {
    threads.parallel_for(elements, 4 * dropout_tile, [&](std::size_t first, std::size_t last) {
      Operands operands(x, residual, y);
      in_windows(first, last, operands.floats, [&](std::size_t begin, std::size_t count) {
        HWY_DYNAMIC_DISPATCH(AddOrCopy)
        (operands.x.at(begin, count), operands.residual.at(begin, count), operands.y.at(begin, count, false), count);
        operands.y.store();
      });
    });
    return;
  }
  const auto samples = mask.sample_ids.size();
  if (samples == 0 || elements % samples != 0) {
    throw ShapeError(text("dropout: ", elements, " values are no whole number for each of ", samples, " samples"));
  }
  const auto per_sample = elements / samples;
  threads.parallel_for(elements, dropout_tile, [&](std::size_t begin, std::size_t end) {
    Operands operands(x, residual, y);
    std::uint32_t words[dropout_tile + 64];  // + 64: skipped words, and one vector that KeepSome may read past the end
    for_keyed_ranges(mask, per_sample, begin, end, operands.floats ? dropout_tile : float_window,
                     [&](std::uint64_t id, std::uint64_t element, std::size_t first, std::size_t size) {
                       // Drawing begins at a whole block of four words; the first `skip` of them belong to earlier
                       // elements.
                       const std::size_t skip = element % 4;
                       philox_words(mask.key, id, element / 4, (skip + size + 3) / 4, words);
                       HWY_DYNAMIC_DISPATCH(KeepSome)
                       (operands.x.at(first, size), operands.residual.at(first, size), words + skip,
                        dropout_limit(mask.rate), static_cast<float>(1 / (1 - mask.rate)),
                        operands.y.at(first, size, false), size);
                       operands.y.store();
                     });
  });
}

}  // namespace

void philox_words(const RandomKey& key, std::uint64_t id, std::uint64_t first_block, std::size_t blocks,
                  std::uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(DrawWords)(key, id, first_block, blocks, words);
}

std::uint32_t dropout_limit(double rate) {
  return static_cast<std::uint32_t>(std::min(std::ceil(rate * 0x1p32), 0x1p32 - 1));
}

void dropout_add_forward(Threads& threads, const DropoutMask& mask, const Elements& x, const Elements& residual,
                         const MutableElements& y) {
  expect_values("dropout", "y", y.size(), static_cast<std::int64_t>(x.size()));
  if (!residual.empty()) expect_values("dropout", "residual", residual.size(), static_cast<std::int64_t>(x.size()));
  apply_dropout(threads, mask, x, residual, y);
}

void dropout_backward(Threads& threads, const DropoutMask& mask, const Elements& dy, const MutableElements& dx) {
  expect_values("dropout", "dx", dx.size(), static_cast<std::int64_t>(dy.size()));
  apply_dropout(threads, mask, dy, {}, dx);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
