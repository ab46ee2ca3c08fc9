// Activations in Highway: one source, compiled for every instruction set. Values and derivatives are computed from the
// same intermediate results where the backward pass needs both.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/activation.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include "framework/kernels/activation.h"
#include "framework/kernels/activation_range.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/float_window.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/vector_math-inl.h"

#ifndef TESSERA_GATE_ROW
#define TESSERA_GATE_ROW
namespace tessera::kernels {
namespace {

/// Operands of gated_backward in one row, or a part of one.
struct GateRow {
  const float *dy, *gate, *up;
  float *dgate, *dup;
};

}  // namespace
}  // namespace tessera::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::V;

// gelu_tanh: with tanh(u) = 2 sigmoid(2u) - 1, 0.5 x (1 + tanh(u)) = x sigmoid(2u), and 2u = a x + b x^3. One
// exponential instead of a tanh.
constexpr float a = 1.5957691216F, b = 0.0713548163F;
constexpr float bell_at_0 = 0.3989422804F;  // 1 / sqrt(2 pi)
constexpr float quick = 1.702F;

/// 2u = a x + b x^3 of gelu_tanh.
HWY_INLINE V TwiceU(V x) { return hn::Mul(x, hn::MulAdd(hn::Mul(x, x), hn::Set(D(), b), hn::Set(D(), a))); }

/// sigmoid(u) and 1 - sigmoid(u). The latter is e^-u sigmoid(u), because subtracting from 1 would cancel for large u.
/// e^-u is limited to e^40 so that their product stays finite.
struct Share {
  V s, rest;
};

HWY_INLINE Share ShareOf(V u) {
  const V one = hn::Set(D(), 1.0F), e = math::Exp(D(), math::NotAbove(D(), 40.0F, hn::Neg(u)));
  const V s = hn::Div(one, hn::Add(one, e));
  return {s, hn::Mul(e, s)};
}

/// Value and derivative of an activation at one point.
struct Point {
  V value, slope;
};

// Each activation has Value(x), and Both(x) for the value and the derivative.

struct GeluTanh {
  static HWY_INLINE V Value(V x) { return hn::Mul(x, math::Sigmoid(D(), TwiceU(x))); }
  /// derivative: s + x s (1 - s) (a + 3 b x^2)
  static HWY_INLINE Point Both(V x) {
    const Share share = ShareOf(TwiceU(x));
    const V inner = hn::MulAdd(hn::Mul(x, x), hn::Set(D(), 3 * b), hn::Set(D(), a));
    return {hn::Mul(x, share.s), hn::MulAdd(hn::Mul(hn::Mul(share.s, share.rest), inner), x, share.s)};
  }
};

struct GeluErf {
  static HWY_INLINE V Value(V x) { return hn::Mul(x, math::NormalOf(D(), x).below); }
  /// derivative: Phi(x) + x phi(x), with the distribution function and the density of the standard normal
  static HWY_INLINE Point Both(V x) {
    const auto normal = math::NormalOf(D(), x);
    return {hn::Mul(x, normal.below), hn::MulAdd(hn::Mul(x, hn::Set(D(), bell_at_0)), normal.bell, normal.below)};
  }
};

/// x sigmoid(1.702 x)
struct QuickGelu {
  static HWY_INLINE V Value(V x) { return hn::Mul(x, math::Sigmoid(D(), hn::Mul(x, hn::Set(D(), quick)))); }
  /// derivative: s + u s (1 - s), u = 1.702 x
  static HWY_INLINE Point Both(V x) {
    const V u = hn::Mul(x, hn::Set(D(), quick));
    const Share share = ShareOf(u);
    return {hn::Mul(x, share.s), hn::MulAdd(hn::Mul(u, share.s), share.rest, share.s)};
  }
};

struct Silu {
  static HWY_INLINE V Value(V x) { return hn::Mul(x, math::Sigmoid(D(), x)); }
  /// derivative: s + x s (1 - s)
  static HWY_INLINE Point Both(V x) {
    const Share share = ShareOf(x);
    const V silu = hn::Mul(x, share.s);
    return {silu, hn::MulAdd(silu, share.rest, share.s)};
  }
};

struct Relu {
  static HWY_INLINE V Value(V x) { return math::NotBelow(D(), 0.0F, x); }
  static HWY_INLINE Point Both(V x) {
    const V one = hn::Set(D(), 1.0F);
    return {Value(x), hn::IfThenElseZero(hn::Gt(x, hn::Zero(D())), one)};
  }
};

struct SquaredRelu {
  static HWY_INLINE V Value(V x) {
    const V r = Relu::Value(x);
    return hn::Mul(r, r);
  }
  static HWY_INLINE Point Both(V x) {
    const V r = Relu::Value(x);
    return {hn::Mul(r, r), hn::Add(r, r)};
  }
};

/// Calls f with the activation that `act` names.
template <class F>
HWY_INLINE void With(Activation act, const F& f) {
  switch (act) {
    case Activation::gelu_tanh:
      return f(GeluTanh());
    case Activation::gelu_erf:
      return f(GeluErf());
    case Activation::quick_gelu:
      return f(QuickGelu());
    case Activation::silu:
      return f(Silu());
    case Activation::relu:
      return f(Relu());
    case Activation::squared_relu:
      return f(SquaredRelu());
    case Activation::none:
      break;
  }
}

void Activate(Activation act, const float* x, float* y, std::size_t size) {
  With(act, [&](auto of) HWY_ATTR { range::Map(x, y, size, [of](V v) HWY_ATTR { return of.Value(v); }); });
}

void ActivateBackward(Activation act, const float* dy, const float* x, float* dx, std::size_t size, bool add) {
  With(act, [&](auto of) HWY_ATTR {
    if (add) {
      range::Map(dy, x, dx, dx, size, [of](V d, V v, V old) HWY_ATTR { return hn::MulAdd(d, of.Both(v).slope, old); });
    } else {
      range::Map(dy, x, dx, size, [of](V d, V v) HWY_ATTR { return hn::Mul(d, of.Both(v).slope); });
    }
  });
}

/// A gate and up after clamp and offset.
struct GateUp {
  V gate, up;
};

HWY_INLINE GateUp Bounded(const GateForm& form, V g, V u) {
  const D d;
  const auto most = static_cast<float>(form.clamp);
  if (form.clamp != 0) {
    g = math::NotAbove(d, most, g);
    u = math::NotBelow(d, -most, math::NotAbove(d, most, u));
  }
  return {g, hn::Add(u, hn::Set(d, static_cast<float>(form.offset)))};
}

void Gate(Activation act, const GateForm& form, const float* gate, const float* up, float* y, std::size_t size) {
  if (!form.plain()) {
    With(act, [&](auto of) HWY_ATTR {
      range::Map(gate, up, y, size, [&form, of](V g, V u) HWY_ATTR {
        const GateUp at = Bounded(form, g, u);
        return hn::Mul(of.Value(at.gate), at.up);
      });
    });
    return;
  }
  With(act, [&](auto of) HWY_ATTR {
    range::Map(gate, up, y, size, [of](V g, V u) HWY_ATTR { return hn::Mul(of.Value(g), u); });
  });
}

template <class Of>
struct PlainGate {
  HWY_INLINE GateUp Slopes(V dy, V g, V u) const {
    const Point at = Of::Both(g);
    return {hn::Mul(hn::Mul(dy, u), at.slope), hn::Mul(dy, at.value)};
  }
};

template <class Of>
struct BoundedGate {
  const GateForm& form;

  HWY_INLINE GateUp Slopes(V dy, V g, V u) const {
    const D d;
    const GateUp bounded = Bounded(form, g, u);
    GateUp slopes = PlainGate<Of>().Slopes(dy, bounded.gate, bounded.up);
    if (form.clamp == 0) return slopes;
    const V most = hn::Set(d, static_cast<float>(form.clamp));
    slopes.gate = hn::IfThenZeroElse(hn::Gt(g, most), slopes.gate);
    slopes.up = hn::IfThenZeroElse(hn::Gt(hn::Abs(u), most), slopes.up);
    return slopes;
  }
};

/// Backward pass of one row or a part of it. The outputs may be the inputs, so both halves of a vector are computed
/// before either is written.
template <class Gating>
HWY_INLINE void GateRowBackward(const Gating& gating, const GateRow& row, std::size_t width, bool add) {
  const D d;
  std::size_t i = 0;
  for (; i + range::lanes <= width; i += range::lanes) {
    auto to = gating.Slopes(hn::LoadU(d, row.dy + i), hn::LoadU(d, row.gate + i), hn::LoadU(d, row.up + i));
    if (add) to = {hn::Add(hn::LoadU(d, row.dgate + i), to.gate), hn::Add(hn::LoadU(d, row.dup + i), to.up)};
    hn::StoreU(to.gate, d, row.dgate + i);
    hn::StoreU(to.up, d, row.dup + i);
  }
  const auto rest = width - i;
  if (rest == 0) return;
  auto to = gating.Slopes(range::LoadTail(row.dy + i, rest), range::LoadTail(row.gate + i, rest),
                          range::LoadTail(row.up + i, rest));
  if (add) {
    to = {hn::Add(range::LoadTail(row.dgate + i, rest), to.gate), hn::Add(range::LoadTail(row.dup + i, rest), to.up)};
  }
  range::StoreTail(to.gate, row.dgate + i, rest);
  range::StoreTail(to.up, row.dup + i, rest);
}

void GateBackward(Activation act, const GateForm& form, const GateRow& row, std::size_t width, bool add) {
  With(act, [&](auto of) HWY_ATTR {
    if (form.plain())
      GateRowBackward(PlainGate<decltype(of)>(), row, width, add);
    else
      GateRowBackward(BoundedGate<decltype(of)>{form}, row, width, add);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(Activate);
HWY_EXPORT(ActivateBackward);
HWY_EXPORT(Gate);
HWY_EXPORT(GateBackward);

// 32 KiB of floats: a tile and its result fit the L2 cache, and a tile takes long enough to be worth handing to a
// thread.
constexpr std::size_t activation_tile = 8192;

/// Rows of a gated activation that make about one tile.
std::size_t gate_rows(std::size_t width) {
  return width >= activation_tile ? 1 : activation_tile / (width == 0 ? 1 : width);
}

}  // namespace

void activation_range(Activation act, const float* x, float* y, std::size_t size) {
  must(act != Activation::none, "an activation is asked for by name");
  HWY_DYNAMIC_DISPATCH(Activate)(act, x, y, size);
}

void activation_forward(Threads& threads, Activation act, const Elements& x, const MutableElements& y) {
  expect_values("activation", "y", y.size(), static_cast<std::int64_t>(x.size()));
  threads.parallel_for(x.size(), activation_tile, [&](std::size_t first, std::size_t last) {
    FloatReader in(x);
    FloatWriter out(y);
    in_windows(first, last, in.in_place() && out.in_place(), [&](std::size_t begin, std::size_t count) {
      activation_range(act, in.at(begin, count), out.at(begin, count, false), count);
      out.store();
    });
  });
}

void activation_backward(Threads& threads, Activation act, const Elements& dy, const Elements& x,
                         const MutableElements& dx, bool add) {
  expect_values("activation", "dy", dy.size(), static_cast<std::int64_t>(x.size()));
  expect_values("activation", "dx", dx.size(), static_cast<std::int64_t>(x.size()));
  must(act != Activation::none, "an activation is asked for by name");
  threads.parallel_for(x.size(), activation_tile, [&](std::size_t first, std::size_t last) {
    FloatReader slope(dy), in(x);
    FloatWriter out(dx);
    const bool floats = slope.in_place() && in.in_place() && out.in_place();
    in_windows(first, last, floats, [&](std::size_t begin, std::size_t count) {
      HWY_DYNAMIC_DISPATCH(ActivateBackward)
      (act, slope.at(begin, count), in.at(begin, count), out.at(begin, count, add), count, add);
      out.store();
    });
  });
}

void gated_forward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, const Elements& x,
                   const MutableElements& y, const GateForm& form) {
  expect_values("gated activation", "x", x.size(), rows * 2 * width);
  expect_values("gated activation", "y", y.size(), rows * width);
  must(act != Activation::none, "an activation is asked for by name");
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), gate_rows(n), [&](std::size_t first, std::size_t last) {
    FloatReader gate(x), up(x);
    FloatWriter out(y);
    for (auto r = first; r < last; ++r)
      in_windows(0, n, gate.in_place() && out.in_place(), [&](std::size_t begin, std::size_t count) {
        const auto at = 2 * n * r + begin;
        HWY_DYNAMIC_DISPATCH(Gate)
        (act, form, gate.at(at, count), up.at(at + n, count), out.at(n * r + begin, count, false), count);
        out.store();
      });
  });
}

void gated_backward(Threads& threads, Activation act, std::int64_t rows, std::int64_t width, const Elements& dy,
                    const Elements& x, const MutableElements& dx, bool add, const GateForm& form) {
  expect_values("gated activation", "x", x.size(), rows * 2 * width);
  expect_values("gated activation", "dx", dx.size(), rows * 2 * width);
  expect_values("gated activation", "dy", dy.size(), rows * width);
  must(act != Activation::none, "an activation is asked for by name");
  const auto n = static_cast<std::size_t>(width);
  threads.parallel_for(static_cast<std::size_t>(rows), gate_rows(n), [&](std::size_t first, std::size_t last) {
    FloatReader slope(dy), gate(x), up(x);
    FloatWriter dgate(dx), dup(dx);
    const bool floats = slope.in_place() && gate.in_place() && dgate.in_place();
    for (auto r = first; r < last; ++r)
      in_windows(0, n, floats, [&](std::size_t begin, std::size_t count) {
        const auto at = 2 * n * r + begin;
        const GateRow row{.dy = slope.at(n * r + begin, count),
                          .gate = gate.at(at, count),
                          .up = up.at(at + n, count),
                          .dgate = dgate.at(at, count, add),
                          .dup = dup.at(at + n, count, add)};
        HWY_DYNAMIC_DISPATCH(GateBackward)(act, form, row, count, add);
        dgate.store();
        dup.store();
      });
  });
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
