#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "framework/kernels/threads.h"

#if !defined(NDEBUG) || !defined(__OPTIMIZE__)
#error "measures nothing without optimization: build with CMAKE_BUILD_TYPE=Release"
#endif

namespace tessera {

/// Time of one repetition in seconds: median, 10th and 90th percentile.
struct Timing {
  double median = 0, low = 0, high = 0;
  int repetitions = 0;
};

/// wall: elapsed time. processor: processor time of the calling thread, which is less affected by other programs on the
/// same cores; valid only for work that this thread does alone.
enum class Clock { wall, processor };
double seconds_on(Clock clock);
inline Clock fair_clock(const kernels::Threads& threads) {
  return threads.count() == 1 ? Clock::processor : Clock::wall;
}

/// Runs `body` until `seconds` have passed, at least `least` times, after `warm_up` runs that are not counted.
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

/// Prints the head of a benchmark: the question, processor, instruction set, threads, compiler and flags, and the
/// commit of the source tree, with a + if files differ from it.
void print_head(const char* question, int threads);

}  // namespace tessera
