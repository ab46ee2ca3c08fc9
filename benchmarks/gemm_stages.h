#pragma once

#include <functional>
#include <string>

#include "framework/kernels/gemm.h"

namespace tessera {

/// How print_stages measures.
struct StageTimes {
  double seconds = 0.5;  ///< how long a stage is repeated; at least five times
  /// Measures the rate of one thread in operations per second. Called before each repetition: that of a shared machine
  /// changes by some percent within seconds.
  std::function<double()> peak;
};

/// Prints where the time of a product goes: its rate from stage to stage, each as a share of the peak. A stage adds one
/// thing to the stage before:
///
///   tile      the register tile, its operands in the L1 cache
///   block     packed panels of one task, times 16 strips of `a`: in the L2 cache
///   memory    operands packed before, `a` and the result of the whole product
///   packing   the product on one thread, extents rounded down to whole tiles and blocks
///   edges     the product on one thread
///   threads   the product on all threads, per thread
///   pages     the same, operands on pages of 4 KiB
void print_stages(kernels::Threads& threads, const std::string& name, const kernels::MatrixProduct& product,
                  const StageTimes& times);

}  // namespace tessera
