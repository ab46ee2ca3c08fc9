#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "framework/kernels/threads.h"

#if !defined(NDEBUG) || !defined(__OPTIMIZE__)
#error "measures nothing without optimisation: build with CMAKE_BUILD_TYPE=Release"
#endif

namespace tessera {

/// Seconds of one repetition: the median, and the spread as the 10th and 90th percentile.
struct Timing {
  double median = 0, low = 0, high = 0;
  int repetitions = 0;
};

/// wall: what passes for the user. processor: what the calling thread was at work, which other programs on the same
/// cores disturb less; fair for work that the caller does alone.
enum class Clock { wall, processor };
double seconds_on(Clock clock);
inline Clock fair_clock(const Threads& threads) { return threads.count() == 1 ? Clock::processor : Clock::wall; }

/// Run `body` until `seconds` have passed, `least` times at the least, after `warm_up` runs that do not count.
template <class Body>
Timing time(const Body& body, Clock clock = Clock::wall, double seconds = 0.3, int least = 5, int warm_up = 2) {
  for (int i = 0; i < warm_up; ++i) body();
  std::vector<double> taken;
  const double start = seconds_on(Clock::wall);
  while (static_cast<int>(taken.size()) < least || seconds_on(Clock::wall) - start < seconds) {
    const double begin = seconds_on(clock);
    body();
    taken.push_back(seconds_on(clock) - begin);
  }
  std::sort(taken.begin(), taken.end());
  const auto at = [&](double share) {
    return taken[static_cast<std::size_t>(share * static_cast<double>(taken.size() - 1))];
  };
  return {at(0.5), at(0.1), at(0.9), static_cast<int>(taken.size())};
}

/// The lines that stand above every benchmark: processor, instruction set, threads, compiler and its flags, and the
/// commit of the checkout that this was built from, with a + when files differ from it.
void print_head(const char* question, int threads);

/// What this machine can do at best, measured in the same run, to judge shares by: billions of fp32 operations a second
/// in fused multiply-adds from registers, all threads together, each counted as two.
double measure_fma_gflops(Threads& threads);

/// The same for memory that no cache holds, in 10^9 bytes a second: reading four streams; a = b + s c, 12 bytes an
/// element counted; and scaling four streams in place, where what is read and what is written both count.
struct MemoryLimits {
  double read, triad, update;
};
MemoryLimits measure_memory_gbytes(Threads& threads);

}  // namespace tessera
