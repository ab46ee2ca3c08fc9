// Conversion between float and the 16-bit types. bfloat16 is rounded with integer arithmetic, identical on every
// instruction set. float16 uses the processor's conversion (F16C) where there is one, else the scalar type. Both round
// to nearest, ties to even.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/type_conversion.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <cstring>

#include "framework/base/error.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/round_range.h"
#include "framework/kernels/type_conversion.h"
#include "framework/kernels/vector.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void widen_bfloat16(const bfloat16* x, float* y, std::size_t size) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  const hn::Rebind<float, decltype(d)> real;
  const std::size_t lanes = hn::Lanes(d);
  const auto* bits = reinterpret_cast<const std::uint16_t*>(x);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto word = hn::ShiftLeft<16>(hn::PromoteTo(d, hn::LoadU(half, bits + i)));
    hn::StoreU(hn::BitCast(real, word), real, y + i);
  }
  for (; i < size; ++i) y[i] = static_cast<float>(x[i]);
}

void narrow_bfloat16(const float* x, bfloat16* y, std::size_t size) {
  const hn::ScalableTag<float> real;
  const hn::Rebind<std::uint32_t, decltype(real)> d;
  const hn::Rebind<std::int32_t, decltype(real)> whole;
  const hn::Rebind<std::uint16_t, decltype(real)> half;
  const std::size_t lanes = hn::Lanes(real);
  auto* bits = reinterpret_cast<std::uint16_t*>(y);
  const auto one = hn::Set(d, 1), below_half = hn::Set(d, 0x7fff), quiet = hn::Set(d, 0x40);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto value = hn::LoadU(real, x + i);
    const auto word = hn::BitCast(d, value);
    const auto upper = hn::ShiftRight<16>(word);
    // Round to nearest even: add 0x7fff, and 1 more if the lowest remaining bit is 1; the carry does the rounding. The
    // addition could turn a NaN into infinity, so a NaN keeps its upper half instead, made quiet.
    const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(below_half, hn::And(upper, one))));
    const auto nan = hn::RebindMask(d, hn::IsNaN(value));
    const auto result = hn::IfThenElse(nan, hn::Or(upper, quiet), rounded);
    hn::StoreU(hn::DemoteTo(half, hn::BitCast(whole, result)), half, bits + i);
  }
  for (; i < size; ++i) y[i] = bfloat16(x[i]);
}

/// The values of narrow_bfloat16, widened, without its lanes that change places.
void round_to_bfloat16(float* x, std::size_t size) {
  const hn::ScalableTag<float> real;
  const hn::Rebind<std::uint32_t, decltype(real)> d;
  const std::size_t lanes = hn::Lanes(real);
  const auto one = hn::Set(d, 1), below_half = hn::Set(d, 0x7fff), quiet = hn::Set(d, 0x400000);
  const auto upper = hn::Set(d, 0xffff0000);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) {
    const auto value = hn::LoadU(real, x + i);
    const auto word = hn::BitCast(d, value);
    const auto even = hn::And(hn::ShiftRight<16>(word), one);
    const auto rounded = hn::Add(word, hn::Add(below_half, even));
    const auto nan = hn::RebindMask(d, hn::IsNaN(value));
    const auto result = hn::And(hn::IfThenElse(nan, hn::Or(word, quiet), rounded), upper);
    hn::StoreU(hn::BitCast(real, result), real, x + i);
  }
  for (; i < size; ++i) x[i] = static_cast<float>(bfloat16(x[i]));
}

void widen_float16(const float16* x, float* y, std::size_t size) {
  std::size_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  const auto* halves = reinterpret_cast<const hwy::float16_t*>(x);
  for (; i + lanes <= size; i += lanes) hn::StoreU(hn::PromoteTo(d, hn::LoadU(half, halves + i)), d, y + i);
#endif
  for (; i < size; ++i) y[i] = static_cast<float>(x[i]);
}

void narrow_float16(const float* x, float16* y, std::size_t size) {
  std::size_t i = 0;
#if HWY_TARGET <= HWY_AVX2
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  auto* halves = reinterpret_cast<hwy::float16_t*>(y);
  for (; i + lanes <= size; i += lanes) hn::StoreU(hn::DemoteTo(half, hn::LoadU(d, x + i)), half, halves + i);
#endif
  for (; i < size; ++i) y[i] = float16(x[i]);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(widen_bfloat16);
HWY_EXPORT(narrow_bfloat16);
HWY_EXPORT(round_to_bfloat16);
HWY_EXPORT(widen_float16);
HWY_EXPORT(narrow_float16);

constexpr std::size_t conversion_tile = std::size_t{1} << 15;

/// Throws ShapeError for a type that this file does not convert.
[[noreturn]] void refuse(const char* who, DType type) {
  throw ShapeError(text(who, ": the elements are ", name_of(type), "; expected float32, bfloat16 or float16"));
}

void same_count(const char* who, std::size_t elements, std::size_t floats) {
  if (elements != floats)
    throw ShapeError(text(who, ": ", elements, " elements and ", floats, " floats; expected as many of both"));
}

}  // namespace

void widen_range(const Elements& x, std::span<float> y) {
  same_count("widen", x.size(), y.size());
  if (y.empty()) return;  // memcpy takes no null pointer
  chosen_isa();
  switch (x.type) {
    case DType::float32:
      std::memcpy(y.data(), x.at, y.size_bytes());
      return;
    case DType::bfloat16:
      HWY_DYNAMIC_DISPATCH(widen_bfloat16)(reinterpret_cast<const bfloat16*>(x.at), y.data(), y.size());
      return;
    case DType::float16:
      HWY_DYNAMIC_DISPATCH(widen_float16)(reinterpret_cast<const float16*>(x.at), y.data(), y.size());
      return;
    default:
      refuse("widen", x.type);
  }
}

void narrow_range(std::span<const float> x, const MutableElements& y) {
  same_count("narrow", y.size(), x.size());
  if (x.empty()) return;
  chosen_isa();
  switch (y.type) {
    case DType::float32:
      std::memcpy(y.at, x.data(), x.size_bytes());
      return;
    case DType::bfloat16:
      HWY_DYNAMIC_DISPATCH(narrow_bfloat16)(x.data(), reinterpret_cast<bfloat16*>(y.at), x.size());
      return;
    case DType::float16:
      HWY_DYNAMIC_DISPATCH(narrow_float16)(x.data(), reinterpret_cast<float16*>(y.at), x.size());
      return;
    default:
      refuse("narrow", y.type);
  }
}

void widen(Threads& threads, const Elements& x, std::span<float> y) {
  same_count("widen", x.size(), y.size());
  threads.parallel_for(y.size(), conversion_tile, [&](std::size_t first, std::size_t last) {
    widen_range(x.part(first, last - first), y.subspan(first, last - first));
  });
}

void narrow(Threads& threads, std::span<const float> x, const MutableElements& y) {
  same_count("narrow", y.size(), x.size());
  threads.parallel_for(x.size(), conversion_tile, [&](std::size_t first, std::size_t last) {
    narrow_range(x.subspan(first, last - first), y.part(first, last - first));
  });
}

void round_to(Threads& threads, DType type, std::span<float> x) {
  if (type == DType::float32) return;
  threads.parallel_for(x.size(), conversion_tile,
                       [&](std::size_t first, std::size_t last) { round_range(type, x.subspan(first, last - first)); });
}

void round_range(DType type, std::span<float> x) {
  if (type == DType::float32) return;
  if (type == DType::bfloat16) {
    chosen_isa();
    HWY_DYNAMIC_DISPATCH(round_to_bfloat16)(x.data(), x.size());
    return;
  }
  constexpr std::size_t piece = 256;
  std::array<std::byte, piece * 2> memory;
  for (; !x.empty(); x = x.subspan(std::min(piece, x.size()))) {
    const auto some = x.first(std::min(piece, x.size()));
    const MutableElements rounded(memory.data(), some.size(), type);
    narrow_range(some, rounded);
    widen_range(rounded, some);
  }
}

std::int64_t first_not_finite(Threads& threads, const Tensor& x) {
  if (x.dtype() == DType::float32) return first_not_finite(threads, x.floats());
  constexpr std::size_t piece = 4096;
  const Elements all(x);
  std::array<float, piece> floats;
  for (std::size_t first = 0; first < all.size(); first += piece) {
    const auto some = std::span(floats).first(std::min(piece, all.size() - first));
    widen_range(all.part(first, some.size()), some);
    const auto at = first_not_finite(threads, some);
    if (at >= 0) return static_cast<std::int64_t>(first) + at;
  }
  return -1;
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
