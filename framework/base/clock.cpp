#include "framework/base/clock.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>

namespace tessera {

double Stopwatch::lap() {
  const auto now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  begin_ = now;
  return seconds;
}

// Called in every step, so without streams or strings, which would allocate.
std::int64_t resident_bytes() {
  const int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  char words[128];
  const auto count = read(file, words, sizeof words);
  close(file);
  const char *at = words, *const end = words + (count > 0 ? count : 0);
  while (at != end && *at != ' ') ++at;  // the first word is the address space
  std::int64_t pages = 0;
  if (at != end) std::from_chars(at + 1, end, pages);
  return pages * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage used{};
  return getrusage(RUSAGE_SELF, &used) == 0 ? std::int64_t{used.ru_maxrss} * 1024 : 0;
}

}  // namespace tessera
