// Measures the peak rates of the processor and its memory. Plain loops in Highway vectors, for the chosen instruction
// set.

#include "framework/kernels/machine_limits.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "framework/base/clock.h"
#include "framework/base/memory_limit.h"
#include "framework/kernels/gemm.h"
#include "framework/kernels/gemm_tiles.h"
#include "framework/kernels/linear.h"
#include "framework/kernels/type_conversion.h"
#include "framework/tensor/arena.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "framework/kernels/machine_limits.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Ten independent chains of `rounds` multiply-adds each; returns the number of floating-point operations.
double multiply_adds(std::size_t rounds, float* result) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, 0.999F), b = hn::Set(d, 1e-3F);
  const auto start = [&](float x) { return hn::Set(d, x); };  // all different, so that the compiler does not merge them
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4);
  auto s5 = start(5), s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9);
  for (std::size_t i = 0; i < rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b), s3 = hn::MulAdd(s3, a, b);
    s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b), s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b);
    s8 = hn::MulAdd(s8, a, b), s9 = hn::MulAdd(s9, a, b);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  *result = hn::GetLane(hn::Add(low, hn::Add(hn::Add(s6, s7), hn::Add(s8, s9))));
  return 2.0 * 10 * static_cast<double>(rounds * hn::Lanes(d));
}

float strided_sum(const float* x, std::size_t size, std::size_t apart) {
  const hn::ScalableTag<float> d;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i)), s1 = hn::Add(s1, hn::LoadU(d, x + i + apart));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * apart)), s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * apart));
  }
  return hn::GetLane(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

void scale_of(float* x, std::size_t size, std::size_t apart) {
  const hn::ScalableTag<float> d;
  const auto scale = [&](float* at) { hn::StoreU(hn::Mul(hn::LoadU(d, at), hn::Set(d, 0.999F)), d, at); };
  for (std::size_t i = 0; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    scale(x + i), scale(x + i + apart), scale(x + i + 2 * apart), scale(x + i + 3 * apart);
  }
}

void triad_of(float* x, std::size_t size, std::size_t apart) {
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    const auto sum = hn::MulAdd(hn::Set(d, 0.5F), hn::LoadU(d, x + i + apart), hn::LoadU(d, x + i + 2 * apart));
    hn::StoreU(sum, d, x + i);
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
namespace {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(strided_sum);
HWY_EXPORT(triad_of);
HWY_EXPORT(scale_of);

double seconds_on(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// The clock that other programs disturb least: processor time, if the calling thread does all work.
clockid_t clock_of(const Threads& threads) { return threads.count() == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC; }

/// Runs `body` repeatedly for `seconds`, at least once; returns the time of the fastest run on `clock`, in seconds.
/// The first run touches memory that the system has not provided yet, and counts only if it alone takes `seconds`.
template <class Body>
double fastest(double seconds, const Body& body, clockid_t clock = CLOCK_MONOTONIC) {
  double best = 1e9;
  const Stopwatch all;
  do {
    const double begin = seconds_on(clock);
    body();
    best = std::min(best, seconds_on(clock) - begin);
  } while (all.seconds() < seconds);
  return best;
}

}  // namespace

double multiply_add_rate(Threads& threads, double seconds) {
  const auto crew = static_cast<std::size_t>(threads.count());
  std::vector<float> results(crew * 64);
  double operations = 0;
  const auto once = [&] {
    threads.parallel_for(crew, 1, [&](std::size_t i, std::size_t) {
      const double done = HWY_DYNAMIC_DISPATCH(multiply_adds)(200'000, &results[i * 64]);
      if (i == 0) operations = done * static_cast<double>(crew);
    });
  };
  const double least = fastest(seconds, once, clock_of(threads));
  return operations / least;
}

double pair_tile_rate(Threads& threads, double seconds) {
  const TileKernels* tiles = pair_tiles();
  if (tiles == nullptr) return 0;
  constexpr std::int64_t depth = 128, calls = 2000;
  const std::int64_t a = tiles->rows * depth, b = tiles->cols * depth, c = tiles->rows * tiles->cols;
  const auto crew = static_cast<std::size_t>(threads.count()), own = static_cast<std::size_t>(a + b + c);
  const Storage memory(crew * own * sizeof(float));
  for (std::size_t at = 0; at < crew * own; ++at) {  // pairs of values in [-0.5, 0.5), not all alike
    const auto value = static_cast<float>(at * 2654435761U % 1000) / 1000 - 0.5F;
    const std::uint32_t half = bfloat16(value).bits;
    memory.floats()[at] = std::bit_cast<float>(half << 16 | half);
  }
  const auto once = [&] {
    threads.parallel_for(crew, 1, [&](std::size_t i, std::size_t) {
      float* at = &memory.floats()[i * own];
      const TileCall call{at, tiles->block, tiles->rows, at,          at + a,     depth, nullptr,
                          0,  at + a + b,   tiles->cols, tiles->rows, tiles->cols};
      for (std::int64_t n = 0; n < calls; ++n) tiles->tile(call);
    });
  };
  const auto operations = 2 * tiles->elements * c * depth * calls * threads.count();
  return static_cast<double>(operations) / fastest(seconds, once, clock_of(threads));
}

MemoryRates memory_rates(Threads& threads) {
  // Four streams of 96 MiB, which no cache holds, but no more than a quarter of the memory that this process may use.
  constexpr std::size_t tile = std::size_t{1} << 16, most_tiles = 384;
  const auto tiles = static_cast<std::size_t>(process_memory_limit().bytes) / 4 / (4 * sizeof(float) * tile);
  const auto stream = std::clamp(tiles, std::size_t{1}, most_tiles) * tile;
  const Storage memory(4 * stream * sizeof(float));  // on huge pages, as the weights of a run
  const auto x = memory.floats();
  std::fill(x.begin(), x.end(), 1.0F);
  std::vector<float> sums(stream / tile * 16);
  const auto read = [&] {
    threads.parallel_for(stream, tile, [&](std::size_t first, std::size_t last) {
      sums[first / tile * 16] = HWY_DYNAMIC_DISPATCH(strided_sum)(&x[first], last - first, stream);
    });
  };
  const auto triad = [&] {
    threads.parallel_for(stream, tile, [&](std::size_t first, std::size_t last) {
      HWY_DYNAMIC_DISPATCH(triad_of)(&x[first], last - first, stream);
    });
  };
  const auto update = [&] {
    threads.parallel_for(stream, tile, [&](std::size_t first, std::size_t last) {
      HWY_DYNAMIC_DISPATCH(scale_of)(&x[first], last - first, stream);
    });
  };
  const auto rate = [&](const auto& body, double bytes) {
    return static_cast<double>(stream) * bytes / fastest(0.3, body);
  };
  return {rate(read, 16), rate(triad, 12), rate(update, 32)};
}

namespace {

/// Elements of `type` on huge pages, not all alike: pages of 4 KiB would take longer to provide than the measurement.
Storage product_operand(DType type, std::int64_t count, float first) {
  constexpr std::int64_t period = 997;
  std::array<float, period> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + 0.001F * static_cast<float>(i);
  Storage memory(static_cast<std::size_t>(count) * size_of(type));
  for (std::int64_t at = 0; at < count; at += period) {
    const auto some = static_cast<std::size_t>(std::min(period, count - at));
    narrow_range(std::span(values).first(some),
                 {memory.bytes().data() + static_cast<std::size_t>(at) * size_of(type), some, type});
  }
  return memory;
}

double measured_product_rate(Threads& threads, DType type, double seconds) {
  constexpr LinearExtents e{256, 768, 768};
  const auto x = product_operand(type, e.rows * e.in, -0.5F), w = product_operand(type, e.in * e.out, 0.25F);
  const Storage y(static_cast<std::size_t>(e.rows * e.out) * size_of(type));
  const auto of = [&](const Storage& memory) {
    return MutableElements(memory.bytes().data(), memory.bytes().size() / size_of(type), type);
  };
  const auto once = [&] { linear_forward(threads, e, of(x), of(w), {}, of(y)); };
  return 2.0 * static_cast<double>(e.rows * e.in * e.out) / fastest(seconds, once);
}

}  // namespace

double product_rate(Threads& threads, DType type, double seconds) {
  static std::mutex changing;
  static std::map<std::tuple<DType, int, double>, double> measured;
  const std::lock_guard one_at_a_time(changing);
  const std::tuple key(type, threads.count(), seconds);
  if (const auto known = measured.find(key); known != measured.end()) return known->second;
  return measured[key] = measured_product_rate(threads, type, seconds);
}

}  // namespace tessera::kernels
#endif  // HWY_ONCE
