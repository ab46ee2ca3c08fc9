// Activations in Highway: one source for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/activation.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// after it, as Highway asks
#include <hwy/highway.h>

#include "framework/kernels/activation.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::V;

/// tanh(u) = 2 sigmoid(2u) - 1, so gelu_tanh(x) = x sigmoid(2u) with 2u = a x + b x^3.
constexpr float a = 1.5957691216F, b = 0.0713548163F;
constexpr float bell_at_0 = 0.3989422804F;  // 1 / sqrt(2 pi)

HWY_INLINE V TwiceU(V x) { return hn::Mul(x, hn::MulAdd(hn::Mul(x, x), hn::Set(D(), b), hn::Set(D(), a))); }

void GeluTanh(const float* x, float* y, std::size_t size) {
  range::Map(x, y, size, [](V v) HWY_ATTR { return hn::Mul(v, math::Sigmoid(D(), TwiceU(v))); });
}

void GeluErf(const float* x, float* y, std::size_t size) {
  range::Map(x, y, size, [](V v) HWY_ATTR { return hn::Mul(v, math::NormalOf(D(), v).below); });
}

/// s = sigmoid(u) and 1 - s, which would cancel if it were taken so; e^-u is kept finite.
struct Share {
  V s, rest;
};

HWY_INLINE Share ShareOf(V u) {
  const V one = hn::Set(D(), 1.0F), e = math::Exp(D(), math::NotAbove(D(), 40.0F, hn::Neg(u)));
  const V s = hn::Div(one, hn::Add(one, e));
  return {s, hn::Mul(e, s)};
}

/// s + x s (1 - s) (a + 3 b x^2)
HWY_INLINE V SlopeTanh(V x) {
  const Share share = ShareOf(TwiceU(x));
  const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(D(), 3 * b), hn::Set(D(), a));
  return hn::MulAdd(hn::Mul(hn::Mul(share.s, share.rest), inner), x, share.s);
}

HWY_INLINE V SlopeErf(V x) {
  const auto normal = math::NormalOf(D(), x);
  return hn::MulAdd(hn::Mul(x, hn::Set(D(), bell_at_0)), normal.bell, normal.below);
}

void GeluTanhBackward(const float* dy, const float* x, float* dx, std::size_t size, bool add) {
  if (add) {
    range::Map(dy, x, dx, dx, size, [](V d, V v, V old) HWY_ATTR { return hn::MulAdd(d, SlopeTanh(v), old); });
  } else {
    range::Map(dy, x, dx, size, [](V d, V v) HWY_ATTR { return hn::Mul(d, SlopeTanh(v)); });
  }
}

void GeluErfBackward(const float* dy, const float* x, float* dx, std::size_t size, bool add) {
  if (add) {
    range::Map(dy, x, dx, dx, size, [](V d, V v, V old) HWY_ATTR { return hn::MulAdd(d, SlopeErf(v), old); });
  } else {
    range::Map(dy, x, dx, size, [](V d, V v) HWY_ATTR { return hn::Mul(d, SlopeErf(v)); });
  }
}

void SwiGlu(const float* gate, const float* up, float* y, std::size_t size) {
  range::Map(gate, up, y, size, [](V g, V u) HWY_ATTR { return hn::Mul(hn::Mul(g, math::Sigmoid(D(), g)), u); });
}

struct GateUp {
  V gate, up;
};

HWY_INLINE GateUp SwiGluSlopes(V dy, V g, V u) {
  const Share share = ShareOf(g);
  const V silu = hn::Mul(g, share.s), slope = hn::MulAdd(silu, share.rest, share.s);
  return {hn::Mul(hn::Mul(dy, u), slope), hn::Mul(dy, silu)};
}

/// One row; dx may be x, so both halves are computed before either is written.
void SwiGluBackward(const float* dy, const float* x, float* dx, std::size_t width, bool add) {
  const D d;
  std::size_t i = 0;
  for (; i + range::lanes <= width; i += range::lanes) {
    auto to = SwiGluSlopes(hn::LoadU(d, dy + i), hn::LoadU(d, x + i), hn::LoadU(d, x + width + i));
    if (add) to = {hn::Add(hn::LoadU(d, dx + i), to.gate), hn::Add(hn::LoadU(d, dx + width + i), to.up)};
    hn::StoreU(to.gate, d, dx + i);
    hn::StoreU(to.up, d, dx + width + i);
  }
  const auto rest = width - i;
  if (rest == 0) return;
  auto to =
      SwiGluSlopes(range::LoadTail(dy + i, rest), range::LoadTail(x + i, rest), range::LoadTail(x + width + i, rest));
  if (add) {
    to = {hn::Add(range::LoadTail(dx + i, rest), to.gate), hn::Add(range::LoadTail(dx + width + i, rest), to.up)};
  }
  range::StoreTail(to.gate, dx + i, rest);
  range::StoreTail(to.up, dx + width + i, rest);
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(GeluTanh);
HWY_EXPORT(GeluErf);
HWY_EXPORT(GeluTanhBackward);
HWY_EXPORT(GeluErfBackward);
HWY_EXPORT(SwiGlu);
HWY_EXPORT(SwiGluBackward);

constexpr std::size_t tile = 8192;

/// Rows that make about one tile.
std::size_t rows_of_a_tile(std::size_t width) { return width >= tile ? 1 : tile / (width == 0 ? 1 : width); }

}  // namespace

void gelu_range(Activation act, const float* x, float* y, std::size_t size) {
  must(act != Activation::none, "gelu is asked for one of its two forms");
  act == Activation::gelu_tanh ? HWY_DYNAMIC_DISPATCH(GeluTanh)(x, y, size) : HWY_DYNAMIC_DISPATCH(GeluErf)(x, y, size);
}

void gelu_forward(Threads& threads, Activation act, std::span<const float> x, std::span<float> y) {
  expect_values("gelu", "y", y.size(), static_cast<std::int64_t>(x.size()));
  threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
    gelu_range(act, x.data() + first, y.data() + first, last - first);
  });
}

void gelu_backward(Threads& threads, Activation act, std::span<const float> dy, std::span<const float> x,
                   std::span<float> dx, bool add) {
  expect_values("gelu", "dy", dy.size(), static_cast<std::int64_t>(x.size()));
  expect_values("gelu", "dx", dx.size(), static_cast<std::int64_t>(x.size()));
  must(act != Activation::none, "gelu is asked for one of its two forms");
  const auto run =
      act == Activation::gelu_tanh ? HWY_DYNAMIC_DISPATCH(GeluTanhBackward) : HWY_DYNAMIC_DISPATCH(GeluErfBackward);
  threads.parallel_for(x.size(), tile, [&](std::size_t first, std::size_t last) {
    run(dy.data() + first, x.data() + first, dx.data() + first, last - first, add);
  });
}

void swiglu_forward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> x,
                    std::span<float> y) {
  expect_values("swiglu", "x", x.size(), rows * 2 * width);
  expect_values("swiglu", "y", y.size(), rows * width);
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), rows_of_a_tile(n), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      HWY_DYNAMIC_DISPATCH(SwiGlu)(x.data() + 2 * n * r, x.data() + 2 * n * r + n, y.data() + n * r, n);
    }
  });
}

void swiglu_backward(Threads& threads, std::int64_t rows, std::int64_t width, std::span<const float> dy,
                     std::span<const float> x, std::span<float> dx, bool add) {
  expect_values("swiglu", "x", x.size(), rows * 2 * width);
  expect_values("swiglu", "dx", dx.size(), rows * 2 * width);
  expect_values("swiglu", "dy", dy.size(), rows * width);
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), rows_of_a_tile(n), [&](std::size_t first, std::size_t last) {
    for (auto r = first; r < last; ++r) {
      HWY_DYNAMIC_DISPATCH(SwiGluBackward)(dy.data() + n * r, x.data() + 2 * n * r, dx.data() + 2 * n * r, n, add);
    }
  });
}

}  // namespace tessera
#endif  // HWY_ONCE
