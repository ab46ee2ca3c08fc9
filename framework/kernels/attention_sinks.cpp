// The gradient of attention sinks in Highway: one source, compiled for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/attention_sinks.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <cmath>

#include "framework/kernels/attention.h"
#include "framework/kernels/attention_call.h"
#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/scratch.h"
#include "framework/kernels/type_conversion.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

double RowDot(const float* x, const float* y, std::size_t size) {
  return range::Sum(size, [&](std::size_t i, auto load) HWY_ATTR { return hn::Mul(load(x + i), load(y + i)); });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(RowDot);

/// `size` elements of x from `first` on as floats: in place if x is float32, else in `memory`.
const float* row_as_floats(const Elements& x, std::int64_t first, std::int64_t size, float* memory) {
  if (x.type == DType::float32) return floats_at(x, first);
  const auto count = static_cast<std::size_t>(size);
  widen_range(x.part(static_cast<std::size_t>(first), count), {memory, count});
  return memory;
}

double gradient_of_sink(const AttentionExtents& e, double sink, const Elements& o, const Elements& d_o,
                        std::span<const float> lse, std::int64_t head) {
  const Scratch memory(static_cast<std::size_t>(2 * e.D));
  const auto group = head / (e.H / e.G), in_group = head % (e.H / e.G);
  double sum = 0;
  for (std::int64_t b = 0; b < e.B; ++b)
    for (std::int64_t t = 0; t < e.T; ++t) {
      const auto first = row_of(e.o, b * e.T + t, group, in_group);
      const float* x = row_as_floats(o, first, e.D, memory.data());
      const float* y = row_as_floats(d_o, first, e.D, memory.data() + e.D);
      const double share = std::exp(sink - lse[static_cast<std::size_t>((b * e.H + head) * e.T + t)]);
      sum -= share * HWY_DYNAMIC_DISPATCH(RowDot)(x, y, static_cast<std::size_t>(e.D));
    }
  return sum;
}

}  // namespace

void attention_sinks_backward(Threads& threads, const AttentionExtents& e, std::span<const float> sinks,
                              const Elements& o, const Elements& d_o, std::span<const float> lse,
                              std::span<float> dsinks) {
  expect_values("attention sinks", "sinks", sinks.size(), e.H);
  expect_values("attention sinks", "dsinks", dsinks.size(), e.H);
  expect_values("attention sinks", "lse", lse.size(), e.B * e.H * e.T);
  const auto reach = e.B * e.T == 0 ? 0 : row_of(e.o, e.B * e.T - 1, e.G - 1, e.H / e.G - 1) + e.D;
  expect_at_least("attention sinks", "o", o.size(), reach);
  expect_at_least("attention sinks", "d_o", d_o.size(), reach);
  threads.parallel_for(sinks.size(), 1, [&](std::size_t begin, std::size_t end) {
    for (auto h = begin; h < end; ++h)
      dsinks[h] += static_cast<float>(
          gradient_of_sink(e, static_cast<double>(sinks[h]), o, d_o, lse, static_cast<std::int64_t>(h)));
  });
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
