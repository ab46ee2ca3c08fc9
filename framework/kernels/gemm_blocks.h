#pragma once

#include <cstdint>
#include <string>

#include "framework/kernels/gemm_tiles.h"

namespace tessera::kernels {

/// Bytes of the caches of one core. The defaults are those of a processor that tells nothing.
struct CacheSizes {
  std::int64_t l1 = 32 << 10, l2 = 512 << 10;
};

/// The caches that Linux describes in `folder` (index0/level, type and size, ...); defaults for what is missing.
CacheSizes cache_sizes(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

/// The kernels with blocks of rows and panels for these caches. With an L2 cache of less than 1 MiB, and if a panel
/// takes at most three quarters of the L1 cache, rows are read in blocks whose k block takes a quarter of the L2 cache,
/// and the panels of a task take at most three eighths of it: a simulated L1 cache of 32 KiB then misses .44 times as
/// often, one of 512 KiB behind it about as often (docs/performance.md). With 2 MiB, blocks of rows in place were 0 to
/// 4 % slower; only rows that a task packs (`strip_rows`) are read in blocks there. Results do not depend on
/// the caches: the blocks of k, which order the sums, stay.
TileKernels fitted_to(const TileKernels& kernels, const CacheSizes& caches);

/// Rows of a block of rows that lie `stride` bytes apart: `block_rows`, or fewer, so that those that share sets of the
/// L2 cache leave a quarter of these sets to the panels. Rows 12 KiB apart in blocks of 126 read the cache behind one
/// of 512 KiB twice as often as rows that are 64 bytes further apart, in blocks of 96 as often (cachegrind).
std::int64_t rows_of_block(const TileKernels& kernels, std::int64_t stride);

}  // namespace tessera::kernels
