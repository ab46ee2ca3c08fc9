#include "framework/base/clock.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>

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

std::int64_t private_resident_bytes() {
  std::ifstream file("/proc/self/statm");  // in pages: all, resident, of these shared, ...
  std::int64_t all = 0, resident = 0, shared = 0;
  return file >> all >> resident >> shared ? (resident - shared) * ::sysconf(_SC_PAGESIZE) : 0;
}

void release_freed_memory() { ::malloc_trim(0); }

}  // namespace tessera
