#pragma once

#include "framework/kernels/threads.h"
#include "framework/tensor/dtype.h"

namespace tessera::kernels {

/// Floating-point operations per second in fp32 multiply-adds (two operations each) on registers, with the vectors
/// of the chosen instruction set and all threads together: the peak that fp32 products are compared with. Repeats a
/// loop of about 0.5 ms for `seconds` and reports the fastest.
double multiply_add_rate(Threads& threads, double seconds = 0.2);

/// Floating-point operations per second of the bfloat16 register tile of pair_tiles() (gemm.h), with random operands in
/// the L1 cache and all threads together: the peak that bfloat16 products are compared with. 0 if the chosen
/// instruction set has no such tile. `seconds` as above.
double pair_tile_rate(Threads& threads, double seconds = 0.2);

/// Floating-point operations per second of a matrix product of [256, 768] and [768, 768] elements of `type` (float32,
/// bfloat16 or float16), which fits the caches. Repeats the product for `seconds` and reports the fastest; a process
/// measures once for each type, number of threads and `seconds`. Throws ShapeError for other types.
double product_rate(Threads& threads, DType type, double seconds);

/// Memory bandwidth for data outside the caches, in bytes per second.
///
///   read     reading four streams
///   triad    a = b + s c, counted as 12 bytes per element
///   update   scaling four streams in place; bytes read and bytes written both count
struct MemoryRates {
  double read, triad, update;
};
/// Measures the bandwidth with all threads together. Uses 384 MiB of memory and takes about 1 s.
MemoryRates memory_rates(Threads& threads);

}  // namespace tessera::kernels
