// Passes over flat memory in Highway: one source, compiled for every instruction set. The optimizer updates put a tail
// shorter than a block through a padded copy, so that each element sees the same vector operations (FMA included)
// wherever a range ends.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/vector.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "framework/base/error.h"
#include "framework/kernels/cpu.h"
#include "framework/kernels/vector.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Sixteen running sums in double: element i goes to sum i % 16, whatever the vector length, so that the result is the
/// same on every instruction set. They are added in order at the end.
double sum_of_squares_of(const float* x, std::size_t size) {
  const hn::CappedTag<double, 16> d;
  const hn::Rebind<float, decltype(d)> half;
  const std::size_t lanes = hn::Lanes(d);
  constexpr std::size_t sums = 16;
  alignas(64) double sum[sums] = {};
  const std::size_t whole = size / sums * sums;
  for (std::size_t lane = 0; lane < sums; lane += 4 * lanes) {  // four sums hide the latency of adding
    const std::size_t left = (sums - lane) / lanes;
    auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
    for (std::size_t i = lane; i < whole; i += sums) {
      const auto v0 = hn::PromoteTo(d, hn::LoadU(half, x + i));
      s0 = hn::MulAdd(v0, v0, s0);
      if (left < 2) continue;
      const auto v1 = hn::PromoteTo(d, hn::LoadU(half, x + i + lanes));
      s1 = hn::MulAdd(v1, v1, s1);
      if (left < 4) continue;
      const auto v2 = hn::PromoteTo(d, hn::LoadU(half, x + i + 2 * lanes));
      const auto v3 = hn::PromoteTo(d, hn::LoadU(half, x + i + 3 * lanes));
      s2 = hn::MulAdd(v2, v2, s2);
      s3 = hn::MulAdd(v3, v3, s3);
    }
    hn::StoreU(s0, d, sum + lane);
    if (left >= 2) hn::StoreU(s1, d, sum + lane + lanes);
    if (left >= 4) hn::StoreU(s2, d, sum + lane + 2 * lanes);
    if (left >= 4) hn::StoreU(s3, d, sum + lane + 3 * lanes);
  }
  for (std::size_t i = whole; i < size; ++i) sum[i - whole] += static_cast<double>(x[i]) * x[i];
  double total = 0;
  for (const double s : sum) total += s;
  return total;
}

void add_to(const float* x, float* y, std::size_t size) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(hn::Add(hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, y + i);
  for (; i < size; ++i) y[i] += x[i];
}

void scale_by(float factor, float* y, std::size_t size) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), hn::Set(d, factor)), d, y + i);
  for (; i < size; ++i) y[i] *= factor;
}

#if HWY_TARGET != HWY_SCALAR
/// Sum of the lanes modulo 2^64. GCC's reduction of such vectors adds signed numbers, whose overflow is undefined.
template <class Words, class W>
HWY_INLINE std::uint64_t TotalOf(Words words, W v) {
  alignas(64) std::uint64_t each[hn::MaxLanes(Words())];
  hn::Store(v, words, each);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < hn::Lanes(words); ++i) sum += each[i];
  return sum;
}
#endif

/// sum_of_words. Integer sums do not depend on the order of additions, so lanes and vectors are added in any order.
std::uint64_t words_of(const float* x, std::size_t size) {
  std::uint64_t sum = 0;
  std::size_t whole = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<float> d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<decltype(d)>> words;
  const std::size_t lanes = hn::Lanes(d);
  whole = size / (4 * lanes) * (4 * lanes);
  auto s0 = hn::Zero(words), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < whole; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::BitCast(words, hn::LoadU(d, x + i)));
    s1 = hn::Add(s1, hn::BitCast(words, hn::LoadU(d, x + i + lanes)));
    s2 = hn::Add(s2, hn::BitCast(words, hn::LoadU(d, x + i + 2 * lanes)));
    s3 = hn::Add(s3, hn::BitCast(words, hn::LoadU(d, x + i + 3 * lanes)));
  }
  sum = TotalOf(words, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
#endif
  for (std::size_t i = whole; i < size; i += 2) {
    std::uint64_t word = 0;
    std::memcpy(&word, x + i, i + 1 < size ? sizeof word : sizeof(float));
    sum += word;
  }
  return sum;
}

std::size_t zeros_in(const float* x, std::size_t size) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0, zeros = 0;
  for (; i + lanes <= size; i += lanes) zeros += hn::CountTrue(d, hn::Eq(hn::LoadU(d, x + i), hn::Zero(d)));
  for (; i < size; ++i) zeros += x[i] == 0 ? 1 : 0;
  return zeros;
}

/// Index at which the first vector begins that holds a NaN or an infinity, or of the scalar tail if none does.
std::size_t not_finite_near(const float* x, std::size_t size) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= size; i += lanes)
    if (!hn::AllTrue(d, hn::IsFinite(hn::LoadU(d, x + i)))) return i;
  return i;
}

/// The factors of an update in float, each computed in double and rounded once.
struct AdamWFloats {
  float clip, keep1, take1, keep2, take2, step, root, eps, decay;
};

/// adamw_update for whole vectors; `size` is a multiple of 64. The bias corrections are folded into `step` = lr / fix1
/// and `root` = 1 / sqrt(fix2). With `undo` no store to a block comes before its number is in undo->copied.
/// The checksums of `undo`, if any, are computed from values in registers: a separate pass would double the time.
template <bool with_sums>
HWY_ATTR void adamw_vectors(const AdamWFloats& f, float* p, const float* grad, float* m, float* v, std::size_t size,
                            const BlockUndo* undo = nullptr) {
  constexpr std::size_t block = 64;
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto clip = hn::Set(d, f.clip), keep1 = hn::Set(d, f.keep1), take1 = hn::Set(d, f.take1);
  const auto keep2 = hn::Set(d, f.keep2), take2 = hn::Set(d, f.take2), step = hn::Set(d, f.step);
  const auto root = hn::Set(d, f.root), eps = hn::Set(d, f.eps), decay = hn::Set(d, f.decay);
#if HWY_TARGET != HWY_SCALAR
  const hn::RepartitionToWide<hn::RebindToUnsigned<decltype(d)>> words;
  auto weights_before = hn::Zero(words), state_before = weights_before;
  auto weights_after = weights_before, state_after = weights_before;
#endif
  for (std::size_t begin = 0; begin < size; begin += block) {
    if (undo != nullptr) {
      for (std::size_t i = 0; i < block; i += lanes) {
        const auto p0 = hn::LoadU(d, p + begin + i), m0 = hn::LoadU(d, m + begin + i), v0 = hn::LoadU(d, v + begin + i);
        hn::StoreU(p0, d, undo->values + i);
        hn::StoreU(m0, d, undo->values + block + i);
        hn::StoreU(v0, d, undo->values + 2 * block + i);
#if HWY_TARGET != HWY_SCALAR
        if constexpr (with_sums) {
          weights_before = hn::Add(weights_before, hn::BitCast(words, p0));
          state_before = hn::Add(state_before, hn::Add(hn::BitCast(words, m0), hn::BitCast(words, v0)));
        }
#endif
      }
#if HWY_TARGET == HWY_SCALAR
      if constexpr (with_sums) {
        undo->sums->weights_before += words_of(p + begin, block);
        undo->sums->state_before += words_of(m + begin, block) + words_of(v + begin, block);
      }
#endif
      undo->copied.store(undo->first + begin / block, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_release);
    }
    for (std::size_t i = begin; i < begin + block; i += lanes) {
      const auto g = hn::Mul(clip, hn::LoadU(d, grad + i));
      const auto m1 = hn::MulAdd(take1, g, hn::Mul(keep1, hn::LoadU(d, m + i)));
      const auto v1 = hn::MulAdd(hn::Mul(take2, g), g, hn::Mul(keep2, hn::LoadU(d, v + i)));
      const auto old = hn::LoadU(d, p + i);
      const auto move = hn::Div(hn::Mul(step, m1), hn::MulAdd(root, hn::Sqrt(v1), eps));
      const auto p1 = hn::Sub(old, hn::MulAdd(decay, old, move));
      hn::StoreU(m1, d, m + i);
      hn::StoreU(v1, d, v + i);
      hn::StoreU(p1, d, p + i);
#if HWY_TARGET != HWY_SCALAR
      if constexpr (with_sums) {
        weights_after = hn::Add(weights_after, hn::BitCast(words, p1));
        state_after = hn::Add(state_after, hn::Add(hn::BitCast(words, m1), hn::BitCast(words, v1)));
      }
#endif
    }
    if (undo != nullptr) {
#if HWY_TARGET == HWY_SCALAR
      if constexpr (with_sums) {
        undo->sums->weights_after += words_of(p + begin, block);
        undo->sums->state_after += words_of(m + begin, block) + words_of(v + begin, block);
      }
#endif
      undo->done.store(undo->first + begin / block + 1, std::memory_order_release);
      std::atomic_thread_fence(std::memory_order_release);
    }
  }
#if HWY_TARGET != HWY_SCALAR
  if constexpr (with_sums) {
    const auto total = [&](auto sum) HWY_ATTR { return TotalOf(words, sum); };
    undo->sums->weights_before += total(weights_before);
    undo->sums->state_before += total(state_before);
    undo->sums->weights_after += total(weights_after);
    undo->sums->state_after += total(state_after);
  }
#endif
}

/// Updates whole blocks of 64 elements in place and the rest in a padded copy; with `undo` there is no rest.
void adamw_range(const AdamWFactors& f, float* p, const float* grad, float* m, float* v, std::size_t size,
                 const BlockUndo* undo) {
  const auto f32 = [](double x) { return static_cast<float>(x); };
  const AdamWFloats floats = {.clip = f32(f.clip),
                              .keep1 = f32(f.beta1),
                              .take1 = f32(1 - f.beta1),
                              .keep2 = f32(f.beta2),
                              .take2 = f32(1 - f.beta2),
                              .step = f32(f.lr / f.fix1),
                              .root = f32(1 / std::sqrt(f.fix2)),
                              .eps = f32(f.eps),
                              .decay = f32(f.lr * f.decay)};
  constexpr std::size_t block = 64;
  const std::size_t whole = size / block * block, rest = size - whole;
  if (undo != nullptr && undo->sums != nullptr)
    adamw_vectors<true>(floats, p, grad, m, v, whole, undo);
  else
    adamw_vectors<false>(floats, p, grad, m, v, whole, undo);
  if (rest == 0) return;
  alignas(64) float part[4][block] = {};
  std::copy_n(p + whole, rest, part[0]);
  std::copy_n(grad + whole, rest, part[1]);
  std::copy_n(m + whole, rest, part[2]);
  std::copy_n(v + whole, rest, part[3]);
  adamw_vectors<false>(floats, part[0], part[1], part[2], part[3], block);
  std::copy_n(part[0], rest, p + whole);
  std::copy_n(part[2], rest, m + whole);
  std::copy_n(part[3], rest, v + whole);
}

/// sgd_update for whole vectors; `size` is a multiple of 64.
HWY_ATTR void sgd_vectors(const SgdFactors& f, float* p, const float* grad, float* u, std::size_t size) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  const auto clip = hn::Set(d, static_cast<float>(f.clip)), decay = hn::Set(d, static_cast<float>(f.decay));
  const auto momentum = hn::Set(d, static_cast<float>(f.momentum)), lr = hn::Set(d, static_cast<float>(f.lr));
  for (std::size_t i = 0; i < size; i += lanes) {
    const auto old = hn::LoadU(d, p + i);
    const auto g = hn::MulAdd(decay, old, hn::Mul(clip, hn::LoadU(d, grad + i)));
    const auto u1 = hn::MulAdd(momentum, hn::LoadU(d, u + i), g);
    hn::StoreU(u1, d, u + i);
    const auto direction = f.nesterov ? hn::MulAdd(momentum, u1, g) : u1;
    hn::StoreU(hn::NegMulAdd(lr, direction, old), d, p + i);
  }
}

void sgd_range(const SgdFactors& f, float* p, const float* grad, float* u, std::size_t size) {
  constexpr std::size_t block = 64;
  const std::size_t whole = size / block * block, rest = size - whole;
  sgd_vectors(f, p, grad, u, whole);
  if (rest == 0) return;
  alignas(64) float part[3][block] = {};
  std::copy_n(p + whole, rest, part[0]);
  std::copy_n(grad + whole, rest, part[1]);
  std::copy_n(u + whole, rest, part[2]);
  sgd_vectors(f, part[0], part[1], part[2], block);
  std::copy_n(part[0], rest, p + whole);
  std::copy_n(part[2], rest, u + whole);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(sum_of_squares_of);
HWY_EXPORT(add_to);
HWY_EXPORT(scale_by);
HWY_EXPORT(zeros_in);
HWY_EXPORT(words_of);
HWY_EXPORT(not_finite_near);
HWY_EXPORT(adamw_range);
HWY_EXPORT(sgd_range);

constexpr std::size_t vector_tile = std::size_t{1} << 16;  // elements of a tile: 256 KiB, which fits an L2 cache

void same_size(std::size_t given, std::size_t expected, const char* who, const char* what) {
  if (given != expected) throw ShapeError(text(who, ": ", what, " has ", given, " values; expected ", expected));
}

}  // namespace

void fill(Threads& threads, float value, std::span<float> y) {
  threads.parallel_for(y.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    std::fill(y.begin() + static_cast<std::ptrdiff_t>(first), y.begin() + static_cast<std::ptrdiff_t>(last), value);
  });
}

void copy(Threads& threads, std::span<const float> x, std::span<float> y) {
  same_size(y.size(), x.size(), "copy", "y");
  threads.parallel_for(y.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    std::memcpy(&y[first], &x[first], (last - first) * sizeof(float));
  });
}

void copy_bytes(Threads& threads, std::span<const std::byte> x, std::span<std::byte> y) {
  same_size(y.size(), x.size(), "copy", "y");
  threads.parallel_for(y.size(), vector_tile * sizeof(float),
                       [&](std::size_t first, std::size_t last) { std::memcpy(&y[first], &x[first], last - first); });
}

void add(Threads& threads, std::span<const float> x, std::span<float> y) {
  same_size(y.size(), x.size(), "add", "y");
  threads.parallel_for(y.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    HWY_DYNAMIC_DISPATCH(add_to)(&x[first], &y[first], last - first);
  });
}

void scale(Threads& threads, float factor, std::span<float> y) {
  threads.parallel_for(y.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    HWY_DYNAMIC_DISPATCH(scale_by)(factor, &y[first], last - first);
  });
}

double sum_of_squares(Threads& threads, std::span<const float> x) {
  return threads.parallel_sum(x.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    return HWY_DYNAMIC_DISPATCH(sum_of_squares_of)(&x[first], last - first);
  });
}

std::int64_t count_zeros(Threads& threads, std::span<const float> x) {
  return static_cast<std::int64_t>(
      threads.parallel_sum(x.size(), vector_tile, [&](std::size_t first, std::size_t last) {
        return static_cast<double>(HWY_DYNAMIC_DISPATCH(zeros_in)(&x[first], last - first));
      }));
}

std::uint64_t sum_of_words(std::span<const float> x) {
  chosen_isa();
  return HWY_DYNAMIC_DISPATCH(words_of)(x.data(), x.size());
}

std::int64_t first_not_finite(Threads& threads, std::span<const float> x) {
  std::atomic<std::size_t> found = x.size();
  threads.parallel_for(x.size(), vector_tile, [&](std::size_t first, std::size_t last) {
    // If an earlier tile has found a value that is not finite, this tile cannot change the result. The minimum over all
    // tiles is computed below.
    if (found.load(std::memory_order_relaxed) < first) return;
    std::size_t i = first + HWY_DYNAMIC_DISPATCH(not_finite_near)(&x[first], last - first);
    while (i < last && std::isfinite(x[i])) ++i;
    if (i == last) return;
    for (auto least = found.load(); i < least && !found.compare_exchange_weak(least, i);) {
    }
  });
  return found == x.size() ? -1 : static_cast<std::int64_t>(found.load());
}

namespace {

void adamw(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
           std::span<float> v, const BlockUndo* undo) {
  same_size(grad.size(), p.size(), "adamw_update", "grad");
  same_size(m.size(), p.size(), "adamw_update", "m");
  same_size(v.size(), p.size(), "adamw_update", "v");
  chosen_isa();
  HWY_DYNAMIC_DISPATCH(adamw_range)(f, p.data(), grad.data(), m.data(), v.data(), p.size(), undo);
}

}  // namespace

void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v) {
  adamw(f, p, grad, m, v, nullptr);
}

void adamw_update(const AdamWFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> m,
                  std::span<float> v, const BlockUndo& undo) {
  must(p.size() % 64 == 0, "an update with copies has whole blocks");
  adamw(f, p, grad, m, v, &undo);
}

void sgd_update(const SgdFactors& f, std::span<float> p, std::span<const float> grad, std::span<float> u) {
  same_size(grad.size(), p.size(), "sgd_update", "grad");
  same_size(u.size(), p.size(), "sgd_update", "u");
  chosen_isa();
  HWY_DYNAMIC_DISPATCH(sgd_range)(f, p.data(), grad.data(), u.data(), p.size());
}

void flush_denormals() {
#if defined(__x86_64__)
  constexpr unsigned flush_to_zero = 0x8000, denormals_are_zero = 0x0040, both = flush_to_zero | denormals_are_zero;
  const unsigned state = __builtin_ia32_stmxcsr();
  if ((state & both) != both) __builtin_ia32_ldmxcsr(state | both);
#endif
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
