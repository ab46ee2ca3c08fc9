// Sums over the arrays of several ranks, in Highway: one source, compiled for every instruction set. Vector and scalar
// code do the same operations on each element, so results do not depend on where a range begins or on the vector
// length.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/ordered_sum.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "framework/base/error.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/ordered_sum.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Sources = std::span<const std::byte* const>;
using Outs = std::span<std::byte* const>;

/// Types that are added as they are stored.
template <class T>
struct Same {
  using Element = T;
  using Sum = T;
  using D = hn::ScalableTag<T>;
  static auto load(D d, const T* x) { return hn::LoadU(d, x); }
  static void store(D d, hn::Vec<D> sum, T* y) { hn::StoreU(sum, d, y); }
};

/// bfloat16, added as float and rounded to nearest even with integer arithmetic (as type_conversion.cpp).
struct Bfloat16 {
  using Element = bfloat16;
  using Sum = float;
  using D = hn::ScalableTag<float>;
  static auto load(D d, const bfloat16* x) {
    const hn::Rebind<std::uint32_t, D> word;
    const hn::Rebind<std::uint16_t, D> half;
    return hn::BitCast(
        d, hn::ShiftLeft<16>(hn::PromoteTo(word, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(x)))));
  }
  static void store(D, hn::Vec<D> sum, bfloat16* y) {
    const hn::Rebind<std::uint32_t, D> d;
    const hn::Rebind<std::int32_t, D> whole;
    const hn::Rebind<std::uint16_t, D> half;
    const auto word = hn::BitCast(d, sum), upper = hn::ShiftRight<16>(word);
    const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(hn::Set(d, 0x7fff), hn::And(upper, hn::Set(d, 1)))));
    const auto result = hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(sum)), hn::Or(upper, hn::Set(d, 0x40)), rounded);
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(whole, result)), half, reinterpret_cast<std::uint16_t*>(y));
  }
};

// float16 with the processor's conversion (F16C); without it, sum_plainly converts with the scalar type.
#if HWY_TARGET <= HWY_AVX2
struct Float16 {
  using Element = float16;
  using Sum = float;
  using D = hn::ScalableTag<float>;
  using Half = hn::Rebind<hwy::float16_t, D>;
  static auto load(D d, const float16* x) {
    return hn::PromoteTo(d, hn::LoadU(Half(), reinterpret_cast<const hwy::float16_t*>(x)));
  }
  static void store(D, hn::Vec<D> sum, float16* y) {
    hn::StoreU(hn::DemoteTo(Half(), sum), Half(), reinterpret_cast<hwy::float16_t*>(y));
  }
};
#endif

template <class T>
const T* at(const std::byte* array, std::size_t i) {
  return reinterpret_cast<const T*>(array) + i;
}
template <class T>
T* at(std::byte* array, std::size_t i) {
  return reinterpret_cast<T*>(array) + i;
}

/// Scalar loop from element `first`: tails of sum_vectors, and types without vector code.
template <class Element, class Sum>
void sum_plainly(Sources sources, Outs outs, Outs streams, std::size_t first, std::size_t count) {
  for (std::size_t i = first; i < count; ++i) {
    auto sum = static_cast<Sum>(*at<Element>(sources[0], i));
    for (const std::byte* const source : sources.subspan(1)) sum += static_cast<Sum>(*at<Element>(source, i));
    for (std::byte* const out : outs) *at<Element>(out, i) = static_cast<Element>(sum);
    for (std::byte* const out : streams) *at<Element>(out, i) = static_cast<Element>(sum);
  }
}

// Bytes of a cache line. Non-temporal stores must fill whole lines to be fast: a partly filled write-combining buffer
// is flushed in several transfers.
constexpr std::size_t line = 64;

/// Copies `count` bytes, whole cache lines, with non-temporal stores; `to` is aligned to a line.
void stream_lines(const std::uint8_t* from, std::uint8_t* to, std::size_t count) {
  const hn::CappedTag<std::uint8_t, line> d;
  for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
#if defined(__SANITIZE_THREAD__)  // ThreadSanitizer does not see non-temporal stores
    hn::Store(hn::LoadU(d, from + i), d, to + i);
#else
    hn::Stream(hn::LoadU(d, from + i), d, to + i);
#endif
  }
}

/// Sums four vectors at a time, each over the sources in order. Sums are written to streams through a buffer of whole
/// cache lines if the streams are aligned, else with ordinary stores.
template <class Type>
void sum_vectors(Sources sources, Outs outs, Outs streams, std::size_t count) {
  using T = typename Type::Element;
  const typename Type::D d;
  const std::size_t lanes = hn::Lanes(d), step = 4 * lanes;
  alignas(line) T sums[4 * hn::MaxLanes(d)];
  bool lines = step * sizeof(T) % line == 0;
  for (std::byte* const out : streams) lines = lines && reinterpret_cast<std::uintptr_t>(out) % line == 0;
  std::size_t i = 0;
  for (; i + step <= count; i += step) {
    const T* x = at<T>(sources[0], i);
    auto s0 = Type::load(d, x), s1 = Type::load(d, x + lanes), s2 = Type::load(d, x + 2 * lanes),
         s3 = Type::load(d, x + 3 * lanes);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      x = at<T>(sources[k], i);
      s0 = hn::Add(s0, Type::load(d, x));
      s1 = hn::Add(s1, Type::load(d, x + lanes));
      s2 = hn::Add(s2, Type::load(d, x + 2 * lanes));
      s3 = hn::Add(s3, Type::load(d, x + 3 * lanes));
    }
    const auto store = [&](T* y) {
      Type::store(d, s0, y);
      Type::store(d, s1, y + lanes);
      Type::store(d, s2, y + 2 * lanes);
      Type::store(d, s3, y + 3 * lanes);
    };
    for (std::byte* const out : outs) store(at<T>(out, i));
    if (streams.empty()) continue;
    if (lines) store(sums);
    for (std::byte* const out : streams) {
      if (lines)
        stream_lines(reinterpret_cast<const std::uint8_t*>(sums), reinterpret_cast<std::uint8_t*>(at<T>(out, i)),
                     step * sizeof(T));
      else
        store(at<T>(out, i));
    }
  }
  sum_plainly<T, typename Type::Sum>(sources, outs, streams, i, count);
  hwy::FlushStream();
}

void sum_of(Sources sources, Outs outs, Outs streams, std::size_t count, DType type) {
  switch (type) {
    case DType::float32:
      return sum_vectors<Same<float>>(sources, outs, streams, count);
    case DType::bfloat16:
      return sum_vectors<Bfloat16>(sources, outs, streams, count);
#if HWY_TARGET <= HWY_AVX2
    case DType::float16:
      return sum_vectors<Float16>(sources, outs, streams, count);
#else
    case DType::float16:
      return sum_plainly<float16, float>(sources, outs, streams, 0, count);
#endif
    case DType::float64:
      return sum_vectors<Same<double>>(sources, outs, streams, count);
    case DType::int64:
      // Unsigned, because signed overflow would be undefined; the bits of the sum are the same.
      return sum_plainly<std::uint64_t, std::uint64_t>(sources, outs, streams, 0, count);
    case DType::int32:
      return sum_plainly<std::uint32_t, std::uint32_t>(sources, outs, streams, 0, count);
    case DType::uint8:
      break;
  }
}

void copy_of(const std::byte* from, std::byte* to, std::size_t count) {
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto* x = reinterpret_cast<const std::uint8_t*>(from);
  auto* y = reinterpret_cast<std::uint8_t*>(to);
  std::size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto v0 = hn::LoadU(d, x + i), v1 = hn::LoadU(d, x + i + lanes), v2 = hn::LoadU(d, x + i + 2 * lanes),
               v3 = hn::LoadU(d, x + i + 3 * lanes);
    hn::StoreU(v0, d, y + i);
    hn::StoreU(v1, d, y + i + lanes);
    hn::StoreU(v2, d, y + i + 2 * lanes);
    hn::StoreU(v3, d, y + i + 3 * lanes);
  }
  if (i < count) std::memcpy(y + i, x + i, count - i);
}

/// Ordinary copies up to the first line boundary and behind the last; whole lines between them with non-temporal
/// stores.
void stream_of(const std::byte* from, std::byte* to, std::size_t count) {
  const std::size_t head = std::min(count, (line - reinterpret_cast<std::uintptr_t>(to) % line) % line);
  const std::size_t whole = (count - head) / line * line;
  std::memcpy(to, from, head);
  stream_lines(reinterpret_cast<const std::uint8_t*>(from) + head, reinterpret_cast<std::uint8_t*>(to) + head, whole);
  std::memcpy(to + head + whole, from + head + whole, count - head - whole);
  hwy::FlushStream();
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {
HWY_EXPORT(sum_of);
HWY_EXPORT(copy_of);
HWY_EXPORT(stream_of);
}  // namespace

void ordered_sum(std::span<const std::byte* const> sources, std::span<std::byte* const> outs,
                 std::span<std::byte* const> streams, std::size_t count, DType type) {
  if (type == DType::uint8) throw ShapeError("sum over processes: no sums of uint8");
  chosen_isa();
  HWY_DYNAMIC_DISPATCH(sum_of)(sources, outs, streams, count, type);
}

void greatest(std::span<const std::byte* const> sources, std::span<std::byte* const> outs, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    float most = *reinterpret_cast<const float*>(sources[0] + i * sizeof(float));
    for (const std::byte* const source : sources.subspan(1)) {
      const float x = *reinterpret_cast<const float*>(source + i * sizeof(float));
      most = x > most || x != x ? x : most;
    }
    for (std::byte* const out : outs) std::memcpy(out + i * sizeof(float), &most, sizeof(float));
  }
}

void copy_bytes(const std::byte* from, std::byte* to, std::size_t count) {
  if (count == 0) return;
  chosen_isa();
  HWY_DYNAMIC_DISPATCH(copy_of)(from, to, count);
}

void stream_bytes(const std::byte* from, std::byte* to, std::size_t count) {
  if (count == 0) return;
  chosen_isa();
  HWY_DYNAMIC_DISPATCH(stream_of)(from, to, count);
}

}  // namespace tessera::kernels
#endif
