#pragma once

#include "framework/kernels/threads.h"

namespace tessera {

/// Floating-point operations a second of one matrix product of a size that fits the caches, best of a few: what this
/// machine can do now, for the share that the progress bar shows. Takes some 50 ms.
double gemm_rate(Threads& threads);

}  // namespace tessera
