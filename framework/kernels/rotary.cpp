// Rotary position embedding in Highway: one source, compiled for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/rotary.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/rotary.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::lanes;
using range::V;

/// The two channels of rotated pairs.
struct Turn {
  V a, b;
};

/// (a, b) rotated by the angle with cosine c and sine s.
HWY_INLINE Turn Turned(V a, V b, V c, V s) {
  return {hn::NegMulAdd(b, s, hn::Mul(a, c)), hn::MulAdd(a, s, hn::Mul(b, c))};
}

/// RotaryLayout::half: channels i and i + pairs. `sign` is -1 for the backward pass, which rotates by -angle.
void TurnHalves(float* x, std::size_t pairs, const float* cosine, const float* sine, float sign) {
  const D d;
  const V by = hn::Set(d, sign);
  float* y = x + pairs;
  std::size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    const V s = hn::Mul(by, hn::LoadU(d, sine + i));
    const Turn to = Turned(hn::LoadU(d, x + i), hn::LoadU(d, y + i), hn::LoadU(d, cosine + i), s);
    hn::StoreU(to.a, d, x + i);
    hn::StoreU(to.b, d, y + i);
  }
  if (i == pairs) return;
  const range::Tail load{pairs - i};
  const Turn to = Turned(load(x + i), load(y + i), load(cosine + i), hn::Mul(by, load(sine + i)));
  range::StoreTail(to.a, x + i, load.count);
  range::StoreTail(to.b, y + i, load.count);
}

/// RotaryLayout::interleaved: channels 2 i and 2 i + 1.
void TurnNeighbours(float* x, std::size_t pairs, const float* cosine, const float* sine, float sign) {
  const D d;
  const V by = hn::Set(d, sign);
  std::size_t i = 0;
  for (; i + lanes <= pairs; i += lanes) {
    V a, b;
    hn::LoadInterleaved2(d, x + 2 * i, a, b);
    const Turn to = Turned(a, b, hn::LoadU(d, cosine + i), hn::Mul(by, hn::LoadU(d, sine + i)));
    hn::StoreInterleaved2(to.a, to.b, d, x + 2 * i);
  }
  for (; i < pairs; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1], c = cosine[i], s = sign * sine[i];
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(TurnHalves);
HWY_EXPORT(TurnNeighbours);

void check(const RotaryExtents& e, std::span<const std::int64_t> head_offsets, std::span<const std::int32_t> positions,
           std::size_t cosine, std::size_t sine, std::size_t x) {
  must(e.rotary_dim > 0 && e.rotary_dim % 2 == 0, "the number of rotary dimensions is even");
  expect_values("rotary", "x", x, e.rows * e.stride);
  expect_values("rotary", "positions", positions.size(), e.rows);
  expect_values("rotary", "sine", sine, static_cast<std::int64_t>(cosine));
  for (const auto offset : head_offsets) {
    if (offset < 0 || offset + e.rotary_dim > e.stride) {
      throw ShapeError(
          text("rotary: a head at ", offset, " with ", e.rotary_dim, " channels leaves its row of ", e.stride));
    }
  }
  const auto angles = static_cast<std::int64_t>(cosine) / (e.rotary_dim / 2);
  for (std::size_t r = 0; r < positions.size(); ++r) {
    if (positions[r] < 0 || positions[r] >= angles) {
      throw ShapeError(text("rotary: row ", r, " has position ", positions[r], "; the tables have ", angles));
    }
  }
}

}  // namespace

void rotary(Threads& threads, RotaryExtents e, std::span<const std::int64_t> head_offsets,
            std::span<const std::int32_t> positions, std::span<const float> cosine, std::span<const float> sine,
            bool backward, const MutableElements& x) {
  check(e, head_offsets, positions, cosine.size(), sine.size(), x.size());
  const auto pairs = static_cast<std::size_t>(e.rotary_dim / 2);
  const auto turn =
      e.layout == RotaryLayout::half ? HWY_DYNAMIC_DISPATCH(TurnHalves) : HWY_DYNAMIC_DISPATCH(TurnNeighbours);
  threads.parallel_for(static_cast<std::size_t>(e.rows), 16, [&](std::size_t first, std::size_t last) {
    const Scratch memory(x.type == DType::float32 ? 0 : 2 * pairs);  // a 16-bit head as floats
    for (auto r = first; r < last; ++r) {
      const auto angle = static_cast<std::size_t>(positions[r]) * pairs;
      for (const auto offset : head_offsets) {
        const auto head = x.part(r * static_cast<std::size_t>(e.stride) + static_cast<std::size_t>(offset), 2 * pairs);
        auto floats = std::span(reinterpret_cast<float*>(head.at), 2 * pairs);
        if (head.type != DType::float32) {
          floats = memory.floats();
          widen_range(head, floats);
        }
        turn(floats.data(), pairs, cosine.data() + angle, sine.data() + angle, backward ? -1.0F : 1.0F);
        if (head.type != DType::float32) narrow_range(floats, head);
      }
    }
  });
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
