#pragma once

#include <cstdint>
#include <string>

#include "framework/kernels/gemm_tiles.h"

namespace tessera::kernels {

/// Bytes of the L2 cache of a core that Linux describes in `folder` (index0/level, type and size, ...); 512 KiB if it
/// does not.
std::int64_t l2_bytes(const std::string& folder = "/sys/devices/system/cpu/cpu0/cache");

/// The kernels with as many panels as three eighths of an L2 cache of `l2` bytes hold, at most those of `kernels`, and
/// as many rows that a task packs as a quarter holds (docs/performance.md). Results do not depend on the cache: the
/// blocks of k, which order the sums, stay.
TileKernels fitted_to(const TileKernels& kernels, std::int64_t l2);

}  // namespace tessera::kernels
