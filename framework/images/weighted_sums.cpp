#include "framework/images/weighted_sums.h"

#include "framework/images/weighted_sums_loop.h"

namespace tessera::images {

void weighted_sums_portable(const WeightedSums& sums) { weighted_sums_loop(sums); }

bool has_avx2() {
#if defined(__x86_64__)
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
#else
  return false;
#endif
}

void weighted_sums(const WeightedSums& sums) { has_avx2() ? weighted_sums_avx2(sums) : weighted_sums_portable(sums); }

}  // namespace tessera::images
