// Soft capping in Highway: one source, compiled for every instruction set.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/softcap.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include "framework/kernels/extents.h"
#include "framework/kernels/range-inl.h"
#include "framework/kernels/softcap.h"
#include "framework/kernels/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using range::D;
using range::V;

void Softcap(float cap, float inverse, const float* x, float* y, std::size_t size) {
  const V most = hn::Set(D(), cap), by = hn::Set(D(), inverse);
  range::Map(x, y, size, [&](V v) HWY_ATTR { return hn::Mul(most, math::Tanh(D(), hn::Mul(v, by))); });
}

/// The derivative 1 - tanh^2, from y = cap * tanh.
void SoftcapBackward(float inverse, const float* dy, const float* y, float* dx, std::size_t size) {
  const V by = hn::Set(D(), inverse), one = hn::Set(D(), 1.0F);
  range::Map(dy, y, dx, size, [&](V d, V v) HWY_ATTR {
    const V share = hn::Mul(v, by);
    return hn::Mul(d, hn::NegMulAdd(share, share, one));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(Softcap);
HWY_EXPORT(SoftcapBackward);

constexpr std::size_t softcap_tile = 8192;

}  // namespace

void softcap_forward(Threads& threads, double cap, std::span<const float> x, std::span<float> y) {
  expect_values("softcap", "y", y.size(), static_cast<std::int64_t>(x.size()));
  must(cap > 0, "a cap is above 0");
  threads.parallel_for(x.size(), softcap_tile, [&](std::size_t first, std::size_t last) {
    HWY_DYNAMIC_DISPATCH(Softcap)
    (static_cast<float>(cap), static_cast<float>(1 / cap), x.data() + first, y.data() + first, last - first);
  });
}

void softcap_backward(Threads& threads, double cap, std::span<const float> dy, std::span<const float> y,
                      std::span<float> dx) {
  expect_values("softcap", "y", y.size(), static_cast<std::int64_t>(dy.size()));
  expect_values("softcap", "dx", dx.size(), static_cast<std::int64_t>(dy.size()));
  must(cap > 0, "a cap is above 0");
  threads.parallel_for(dy.size(), softcap_tile, [&](std::size_t first, std::size_t last) {
    HWY_DYNAMIC_DISPATCH(SoftcapBackward)
    (static_cast<float>(1 / cap), dy.data() + first, y.data() + first, dx.data() + first, last - first);
  });
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
