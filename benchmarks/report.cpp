#include "benchmarks/report.h"

#include <cstdio>
#include <ctime>
#include <string>

#include "framework/kernels/cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "benchmarks/report.cpp"
#include <hwy/foreach_target.h>  // compiles this file once for each target
// must come after foreach_target.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::HWY_NAMESPACE {
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

float sum_of(const float* x, std::size_t size, std::size_t apart) {
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

}  // namespace tessera::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera {
namespace {

HWY_EXPORT(multiply_adds);
HWY_EXPORT(sum_of);
HWY_EXPORT(triad_of);
HWY_EXPORT(scale_of);

std::string output_of(const std::string& command) {
  std::string out;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char part[256];
    while (fgets(part, sizeof part, pipe) != nullptr) out += part;
    pclose(pipe);
  }
  return out;
}

std::string commit_of_checkout() {
  const std::string git = "git -C '" BENCHMARK_SOURCE_DIR "' ";
  std::string commit = output_of(git + "rev-parse --short HEAD 2>/dev/null");
  if (commit.empty()) return "unknown";
  commit.pop_back();
  return output_of(git + "status --porcelain --untracked-files=no 2>/dev/null").empty() ? commit : commit + "+";
}

}  // namespace

double seconds_on(Clock clock) {
  timespec now{};
  clock_gettime(clock == Clock::wall ? CLOCK_MONOTONIC : CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void print_head(const char* question, int threads) {
  std::printf("%s\n  %s\n  %d threads; compiler %s, flags %s; commit %s\n", question, kernels::describe_cpu().c_str(),
              threads, __VERSION__, BENCHMARK_FLAGS, commit_of_checkout().c_str());
}

double measure_fma_gflops(kernels::Threads& threads) {
  const auto crew = static_cast<std::size_t>(threads.count());
  std::vector<float> results(crew * 64);
  double operations = 0;
  const auto once = [&] {
    threads.parallel_for(crew, 1, [&](std::size_t i, std::size_t) {
      const double done = HWY_DYNAMIC_DISPATCH(multiply_adds)(2'000'000, &results[i * 64]);
      if (i == 0) operations = done * static_cast<double>(crew);
    });
  };
  const double seconds = time(once, fair_clock(threads), 0.2).low;
  return operations / seconds / 1e9;
}

MemoryLimits measure_memory_gbytes(kernels::Threads& threads) {
  constexpr std::size_t stream = std::size_t{24} << 20, tile = std::size_t{1} << 16;  // four streams of 96 MiB
  std::vector<float> x(4 * stream, 1.0F), sums(stream / tile * 16);
  const auto read = [&] {
    threads.parallel_for(stream, tile, [&](std::size_t first, std::size_t last) {
      sums[first / tile * 16] = HWY_DYNAMIC_DISPATCH(sum_of)(&x[first], last - first, stream);
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
    const double seconds = time(body, fair_clock(threads), 0.3).low;
    return stream * bytes / seconds / 1e9;
  };
  return {rate(read, 16), rate(triad, 12), rate(update, 32)};
}

}  // namespace tessera
#endif  // HWY_ONCE
