#pragma once

#include "framework/kernels/threads.h"

namespace tessera::training {

/// Floating-point operations per second of a matrix product that fits the caches, the best of a few: the attainable peak
/// of this machine, which the progress bar compares a step with. Takes about 50 ms.
double gemm_rate(kernels::Threads& threads);

}  // namespace tessera::training
