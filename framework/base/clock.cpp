#include "framework/base/clock.h"

#include <sys/resource.h>

namespace tessera {

double Stopwatch::lap() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  begin_ = now;
  return seconds;
}

std::int64_t peak_resident_bytes() {
  rusage used{};
  return getrusage(RUSAGE_SELF, &used) == 0 ? std::int64_t{used.ru_maxrss} * 1024 : 0;
}

}  // namespace tessera
