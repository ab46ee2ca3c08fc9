#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "framework/kernels/threads.h"
#include "framework/tensor/arena.h"

#if !defined(NDEBUG) || !defined(__OPTIMIZE__)
#error "measures nothing without optimization: build with CMAKE_BUILD_TYPE=Release"
#endif

namespace tessera {

/// Time of one repetition in seconds: median, 10th and 90th percentile.
struct Timing {
  double median = 0, low = 0, high = 0;
  int repetitions = 0;
};

Timing timing_of(std::vector<double> seconds);  ///< of at least one repetition

/// wall: elapsed time. processor: processor time of the calling thread, which is less affected by other programs on the
/// same cores; valid only for work that this thread does alone.
enum class Clock { wall, processor };
double seconds_on(Clock clock);
/// Processor time of all threads of this process.
double processor_seconds();
inline Clock fair_clock(const kernels::Threads& threads) {
  return threads.count() == 1 ? Clock::processor : Clock::wall;
}

/// Seconds since the system's start in which some program of it waited for a processor ("some" of /proc/pressure/cpu);
/// 0 if Linux does not tell.
double stalled_seconds();

/// One repetition, measured by all clocks; wall and processor in seconds, the latter of all threads of the process.
struct Repetition {
  double wall = 0, processor = 0;
  bool clean = true;  ///< other programs took a processor away for less than a fiftieth of the time
};

/// Repetitions of one piece of work: those that other programs did not disturb, if they are three or all; else all.
struct Repetitions {
  Timing wall, processor;  ///< `wall` of the chosen ones, `processor` of all
  int clean = 0, total = 0;
};
Repetitions summary(const std::vector<Repetition>& all);

/// Runs `body` `warm_up` times, which are not counted, then until `seconds` have passed, at least `least` times.
template <class Body>
Repetitions repeat(const Body& body, double seconds, int least, int warm_up) {
  for (int i = 0; i < warm_up; ++i) body();
  std::vector<Repetition> all;
  const double start = seconds_on(Clock::wall);
  while (static_cast<int>(all.size()) < least || seconds_on(Clock::wall) - start < seconds) {
    const double stalled = stalled_seconds(), began = seconds_on(Clock::wall), worked = processor_seconds();
    body();
    const double wall = seconds_on(Clock::wall) - began;
    all.push_back({wall, processor_seconds() - worked, stalled_seconds() - stalled < wall / 50});
  }
  return summary(all);
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
  return timing_of(std::move(taken));
}

/// Argument `index` of main: a whole number of at least 1, `otherwise` if there are fewer arguments. Any other text
/// ends
/// the program with a message and exit code 2.
std::int64_t count_argument(int argc, char** argv, int index, std::int64_t otherwise);
/// The same for a number of threads; one for each processor if there are fewer arguments.
int threads_argument(int argc, char** argv, int index);
/// Ends the program with a message and exit code 2.
[[noreturn]] void refuse_argument(const char* argument, const std::string& expected);

/// Random values in [-1, 1), on huge pages as the memory of a run.
Storage random_floats(std::int64_t size, unsigned seed);

/// Prints the head of a benchmark: the question, processor, instruction set, threads, compiler and flags, and the
/// commit of the source tree, with a + if files differ from it.
void print_head(const char* question, int threads);

}  // namespace tessera
