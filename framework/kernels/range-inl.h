// Elementwise loops and sums over ranges of floats in Highway vectors, compiled once for each instruction set. Include
// after hwy/highway.h. A tail shorter than a vector is computed by the same vector code on a zero-padded copy, so the
// result of an element does not depend on where its range begins and ends.

#if defined(TESSERA_KERNELS_RANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_RANGE_INL_H_
#undef TESSERA_KERNELS_RANGE_INL_H_
#else
#define TESSERA_KERNELS_RANGE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels {
namespace HWY_NAMESPACE {
namespace range {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
constexpr std::size_t lanes = hn::MaxLanes(D());

/// The vector x[0 .. count), padded with zeros; count < lanes. Does not read beyond x[count - 1].
HWY_INLINE V LoadTail(const float* x, std::size_t count) {
  alignas(64) float padded[lanes] = {};
  for (std::size_t i = 0; i < count; ++i) padded[i] = x[i];
  return hn::Load(D(), padded);
}

/// Writes the first `count` lanes to y; count < lanes.
HWY_INLINE void StoreTail(V v, float* y, std::size_t count) {
  alignas(64) float padded[lanes];
  hn::Store(v, D(), padded);
  for (std::size_t i = 0; i < count; ++i) y[i] = padded[i];
}

/// y[i] = f(x[i]); f maps a vector to a vector. y may be x.
template <class F>
HWY_INLINE void Map(const float* x, float* y, std::size_t size, const F& f) {
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(f(hn::LoadU(D(), x + i)), D(), y + i);
  if (i < size) StoreTail(f(LoadTail(x + i, size - i)), y + i, size - i);
}

/// y[i] = f(a[i], b[i]).
template <class F>
HWY_INLINE void Map(const float* a, const float* b, float* y, std::size_t size, const F& f) {
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(f(hn::LoadU(D(), a + i), hn::LoadU(D(), b + i)), D(), y + i);
  if (i < size) StoreTail(f(LoadTail(a + i, size - i), LoadTail(b + i, size - i)), y + i, size - i);
}

/// y[i] = f(a[i], b[i], c[i]).
template <class F>
HWY_INLINE void Map(const float* a, const float* b, const float* c, float* y, std::size_t size, const F& f) {
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    hn::StoreU(f(hn::LoadU(D(), a + i), hn::LoadU(D(), b + i), hn::LoadU(D(), c + i)), D(), y + i);
  }
  if (i < size) {
    const auto rest = size - i;
    StoreTail(f(LoadTail(a + i, rest), LoadTail(b + i, rest), LoadTail(c + i, rest)), y + i, rest);
  }
}

/// Loaders that SumTwo, Sum and EachVector (norm.cpp) pass to their functions: `Whole` loads a whole vector, `Tail` a
/// zero-padded tail of `count` floats.
struct Whole {
  HWY_INLINE V operator()(const float* x) const { return hn::LoadU(D(), x); }
};
struct Tail {
  std::size_t count;
  HWY_INLINE V operator()(const float* x) const { return LoadTail(x, count); }
};

/// The sum of the first `count` lanes, in double, in ascending order.
HWY_INLINE double SumOfFirst(V v, std::size_t count) {
  alignas(64) float each[lanes];
  hn::Store(v, D(), each);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += each[i];
  return sum;
}

template <class T>
struct Two {
  T a, b;
};

/// The sums over i of the two vectors that f(i, load) returns, where load(pointer) reads a vector. Two running fp32
/// vectors per sum hide the latency of the addition; they are folded into doubles every 64 vectors, so that the fp32
/// rounding error does not grow with the size. The order depends on the size and the vector length only.
template <class F>
HWY_INLINE Two<double> SumTwo(std::size_t size, const F& f) {
  const D d;
  const std::size_t whole = size / lanes * lanes;
  Two<double> total = {0, 0};
  for (std::size_t i = 0; i < whole;) {
    const std::size_t end = i + 64 * lanes < whole ? i + 64 * lanes : whole;
    V a0 = hn::Zero(d), b0 = a0, a1 = a0, b1 = a0;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      const Two<V> first = f(i, Whole()), second = f(i + lanes, Whole());
      a0 = hn::Add(a0, first.a);
      b0 = hn::Add(b0, first.b);
      a1 = hn::Add(a1, second.a);
      b1 = hn::Add(b1, second.b);
    }
    if (i < end) {
      const Two<V> last = f(i, Whole());
      a0 = hn::Add(a0, last.a);
      b0 = hn::Add(b0, last.b);
      i += lanes;
    }
    total.a += SumOfFirst(hn::Add(a0, a1), lanes);
    total.b += SumOfFirst(hn::Add(b0, b1), lanes);
  }
  if (whole < size) {
    const Two<V> last = f(whole, Tail{size - whole});
    total.a += SumOfFirst(last.a, size - whole);
    total.b += SumOfFirst(last.b, size - whole);
  }
  return total;
}

/// The sum over i of the vector that f(i, load) returns, in the order of SumTwo.
template <class F>
HWY_INLINE double Sum(std::size_t size, const F& f) {
  return SumTwo(size, [&](std::size_t i, auto load) HWY_ATTR { return Two<V>{f(i, load), hn::Zero(D())}; }).a;
}

}  // namespace range
}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels
HWY_AFTER_NAMESPACE();

#endif
