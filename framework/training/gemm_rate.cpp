#include "framework/training/gemm_rate.h"

#include <algorithm>
#include <vector>

#include "framework/base/clock.h"
#include "framework/kernels/linear.h"

namespace tessera::training {

double gemm_rate(kernels::Threads& threads) {
  constexpr kernels::LinearExtents e{512, 768, 768};
  constexpr int tries = 5;
  const std::vector<float> x(static_cast<std::size_t>(e.rows * e.in), 0.5F),
      w(static_cast<std::size_t>(e.in * e.out), 0.25F);
  std::vector<float> y(static_cast<std::size_t>(e.rows * e.out));
  double best = 0;
  for (int i = 0; i < tries; ++i) {
    const Stopwatch watch;
    kernels::linear_forward(threads, e, x, w, {}, y);
    best = std::max(best, 2.0 * static_cast<double>(e.rows * e.in * e.out) / watch.seconds());
  }
  return best;
}

}  // namespace tessera::training
