#include "framework/images/weighted_sums_loop.h"

namespace tessera::images {

void weighted_sums_avx2(const WeightedSums& sums) { weighted_sums_loop(sums); }

}  // namespace tessera::images
