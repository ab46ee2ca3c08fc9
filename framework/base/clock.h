#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

/// Measures elapsed time, in seconds, with the monotonic clock.
class Stopwatch {
 public:
  /// Seconds since construction or the last lap().
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  /// Returns seconds() and restarts the measurement at 0.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

/// The maximum of this process's resident memory so far, in bytes; 0 if unknown. No heap allocation.
std::int64_t peak_resident_bytes();
/// This process's resident memory now, without pages of files and shared memory, in bytes; 0 if unknown.
std::int64_t private_resident_bytes();
/// Returns the pages of freed blocks, which the C library keeps, to the operating system.
void release_freed_memory();

/// Seconds since 1970, as the system's clock says now.
inline double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace tessera
