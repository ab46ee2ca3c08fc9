#pragma once

#include <cstdint>

namespace tessera::tsrun {

/// How many processes the system has killed for memory so far: in this process's cgroup (version 1 or 2), or, where
/// none tells, in the whole machine.
std::uint64_t memory_kills();

}  // namespace tessera::tsrun
