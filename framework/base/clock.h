#pragma once

#include <chrono>
#include <cstdint>

namespace tessera {

/// Seconds since it was made or begun anew, by the clock that never jumps.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  /// The seconds so far; counting begins again at 0.
  double lap();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point begin_ = Clock::now();
};

/// Bytes of this process that lie in memory now. Linux (/proc/self/statm); no heap allocation; 0 when unknown.
std::int64_t resident_bytes();
/// The most that ever lay in memory at once. No heap allocation.
std::int64_t peak_resident_bytes();

}  // namespace tessera
